"""Text made harmless, whatever a case, a path, a record or an exception says."""

import io
import re
import shlex
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.results.records.sanitize import block, cleaned, command_line, literal, one_line, tell, visible
from tests.kit.harmless import ANY, assert_harmless

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("text, seen", [
    ("a\tb\nc", "a\tb\nc"), ("\x1b[31m", "␛[31m"), ("a\x00b\x7f", "a␀b␡"), ("a\r\nb", "a␍\nb"),
    ("\u202eexe", "<U+202E>exe"), ("\ud800", "<U+D800>"), ("a\u061cb\u00adc", "a<U+061C>b<U+00AD>c"),
    ("::error::x", "<U+003A>:error::x"),
    ("a\n \u3000::stop-commands::x", "a\n \u3000<U+003A>:stop-commands::x"),
    ("aten::asinh and a::b", "aten::asinh and a::b"), ("see ##[error]x", "see <U+0023>#[error]x"),
    ("## heading", "## heading"),
])  # fmt: skip
def test_what_acts_is_written_out(text, seen):
    assert visible(text) == seen


def test_no_character_that_acts_or_is_not_seen_is_forgotten():
    """By Unicode's own tables: controls, surrogates, separators, and formats but for those that are drawn."""
    drawn = "NUMBER SIGN|NUMBER MARK|YEAR|FOOTNOTE|PAGE|SAMVAT|SAFHA|SANAH|END OF AYAH|ABBREVIATION|POUND|PIASTRE|"
    drawn += "DISPUTED|EGYPTIAN HIEROGLYPH"
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        kind, name = unicodedata.category(character), unicodedata.name(character, "")
        acts = kind in ("Cc", "Cs", "Zl", "Zp") or (kind == "Cf" and not re.search(drawn, name))
        if acts and character not in "\n\t":
            assert visible(character) != character, f"U+{code:04X} {name}"


def test_one_line_is_one_line_and_no_longer_than_that():
    assert one_line(" a\n b\t\tc ") == "a b c" and one_line("abcdef", 4) == "abc…" and one_line(None) == ""


def test_cleaned_data_is_plain_and_exact():
    value = {"a\x00": [float("inf"), float("nan"), 2**60, 2**50, True, None, "\x1b", (1, 2)]}
    assert cleaned(value) == {"a␀": ["inf", "nan", str(2**60), 2**50, True, None, "␛", [1, 2]]}


@given(ANY)
def test_any_text_is_harmless_and_stays_so(text):
    for shown in (visible(text), literal(text), one_line(text), one_line(text, 20), block(text)):
        assert_harmless(shown)
    for function in (visible, literal, one_line):
        assert function(function(text)) == function(text)
    assert len(literal(text).splitlines()) <= 1
    assert all(line.startswith("    ") for line in block(text).split("\n")[1:])


@given(st.text(st.characters(categories=["L", "N"]) | st.sampled_from(" .,;:!?-+*/()[]{}<>\"'`$&|\\_=^~@%")))
def test_text_that_does_nothing_stays_as_it_is(text):
    if not text.lstrip().startswith("::"):
        assert literal(text) == text


@given(st.lists(ANY))
def test_a_command_is_harmless_on_one_line(words):
    line = command_line(["conformance", *words])
    assert literal(line) == line
    if "$'" not in line:
        assert shlex.split(line) == ["conformance", *words]


PLACES = [
    "a folder", "it's", 'a "quoted" one', "$(touch planted)", "`id`", "a;b|c&d", "*?[x]", "~", "#", "", "new\nline",
    "tab\there", "\x1b[31m", "user\u202eexe", "::error::x", "##[error]", "back\\slash", "ünïcödé", "\udcff",
]  # fmt: skip


def test_a_shell_reads_back_the_words_of_a_command(tmp_path):
    """Also those that ``shlex.split`` does not know, in ``$'...'``."""
    line = command_line([sys.executable, "-c", "import os, sys; sys.stdout.buffer.write(b'\\0'.join("
                         "os.fsencode(word) for word in sys.argv[1:]))", *PLACES])  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8", "PATH": "/bin"}
    )
    assert done.stdout.split(b"\0") == [place.encode("utf-8", "surrogateescape") for place in PLACES]
    assert list(tmp_path.iterdir()) == []
    plain = [place for place in PLACES if literal(place) == place]
    assert len(plain) > 10 and shlex.split(command_line(plain)) == plain


def test_a_line_is_told_in_what_the_stream_can_hold():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    tell("✓ a\nb \ud800", stream)
    assert raw.getvalue() == b"\\u2713 a\\u240ab <U+D800>\n"
