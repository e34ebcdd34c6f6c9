"""What case files say is kept from one process to the next: the same document, and never that of another text."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from conformance.case.files import kept_documents
from conformance.case.files.document import Document, read_document
from tests.kit.calls import count_calls
from tests.kit.cases import write_case
from tests.kit.runs import run_suite

TEXT = """
one:
  about: a case
  forward: torch.sin(x)
  inputs: {x: {type: "float32[n, 4]", values: {uniform: {low: -.inf, high: .inf}}}}
  dims: {n: 1..4}
  trace: {1: 2, n: 12345678901234567890}
  tags: [a, ~, true, 1.5e300, "é\\u2028"]
""" + "".join(f"# line {number} of a comment that makes the file worth keeping\n" for number in range(60))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """Where documents are kept, in a store that is there."""
    folder = tmp_path / "store" / "documents"
    folder.parent.mkdir()
    kept_documents.keep_in(folder)
    yield folder
    kept_documents.keep_in(None)


def read(file: Path) -> tuple[Document, int]:
    """The document, and how often YAML was parsed for it."""
    with count_calls(YAML.compose) as counts:
        document = read_document(file)
    return document, counts["compose"]


def case_file(folder: Path, text: str = TEXT) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "case.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_document_is_parsed_once_and_is_the_same_afterwards(tmp_path, kept):
    file = case_file(tmp_path)
    first, parsed = read(file)
    second, again = read(file)
    assert (parsed, again) == (1, 0) and first == second
    assert [type(value) for value in second.values["one"]["tags"]] == [str, type(None), bool, float, str]
    assert second.values["one"]["trace"] == {1: 2, "n": 12345678901234567890}
    assert second.places[("one", "trace", 1)] == (7, 11)


def test_an_edit_of_the_same_length_and_time_is_read(tmp_path, kept):
    file = case_file(tmp_path)
    read_document(file)
    before = file.stat()
    case_file(tmp_path, TEXT.replace("sin", "cos"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_document(file).values["one"]["forward"] == "torch.cos(x)"
    assert len(list(kept.iterdir())) == 1


def test_what_was_kept_of_another_file_or_text_is_not_taken(tmp_path, kept):
    file, other = case_file(tmp_path), case_file(tmp_path / "other", TEXT.replace("sin", "cos"))
    read_document(other)
    (of_other,) = kept.iterdir()
    read_document(file)
    (of_file,) = {*kept.iterdir()} - {of_other}
    shutil.copy(of_other, of_file)
    assert read_document(file).values["one"]["forward"] == "torch.sin(x)"


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:-1], lambda data: data[:80] + bytes([data[80] ^ 1]) + data[81:],
], ids=["empty", "cut", "one bit"])  # fmt: skip
def test_what_is_damaged_is_parsed_again(tmp_path, kept, damage):
    file = case_file(tmp_path)
    first = read_document(file)
    (place,) = kept.iterdir()
    place.write_bytes(damage(place.read_bytes()))
    assert read(file) == (first, 1)


def test_a_second_run_of_the_suite_reads_what_the_first_has_kept(tmp_path):
    comment = "# a comment that makes the file worth keeping\n" * 60
    write_case(tmp_path / "cases", f'forward: x\ninputs: {{x: "float32[n, 4]"}}\ndims: {{n: 1..4}}\n{comment}')
    for _ in range(2):
        outcome = run_suite(tmp_path, "--collect-only", "-q", "-k", "planted")
        assert outcome.code == 0, outcome.text
        (tmp_path / ".conformance").mkdir(exist_ok=True)
    assert len(list((tmp_path / ".conformance/documents").iterdir())) == 1
