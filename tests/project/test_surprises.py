"""The scripts of ``findings``: what came of each is told by its exit code, and the page has a row for each."""

import os

import pytest

from benchmarks.common import ROOT
from evidence.surprises import CHANGED, GONE, HOLDS, OTHER_PROCESSOR, UNTRIED, main, try_script

SEEN = 'echo "expected: 3 values"\necho "seen: 2 values"\n'
PLANTED = {
    "holds": (SEEN, HOLDS, ""),
    "mended": (SEEN + 'echo "this has changed" >&2\nexit 1', CHANGED, "seen: 2 values; this has changed"),
    "elsewhere": (SEEN + 'echo "seen on AVX2 alone"\nexit 3', OTHER_PROCESSOR, "seen on AVX2 alone"),
    "gone": ('echo "no such version" >&2\nexit 4', GONE, "no such version"),
    "broken": ('echo "NameError: x" >&2\nexit 1', UNTRIED, "NameError: x"),
    "killed": (SEEN + "kill -9 $$", UNTRIED, "exit code -9"),
}


@pytest.fixture
def planted(tmp_path):
    for name, (text, _, _) in PLANTED.items():
        (tmp_path / f"{name}.sh").write_text(f"#!/bin/sh\nset -eu\n{text}\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", PLANTED)
def test_exit_codes_are_told_apart(planted, name):
    tried = try_script(planted / f"{name}.sh")
    assert (tried.outcome, tried.why) == PLANTED[name][1:]


def test_a_script_without_an_end_is_not_tried(tmp_path):
    script = tmp_path / "long.sh"
    script.write_text("exec sleep 60\n", encoding="utf-8")
    assert try_script(script, limit=0.2).outcome == UNTRIED


def test_the_command_prints_all_and_fails_where_one_has_changed(planted, capsys):
    assert main(["--folder", str(planted)]) == 1
    said = capsys.readouterr().out
    assert "changed          mended: seen: 2 values; this has changed" in said
    assert "1 holds, 1 changed, 1 other processor, 1 not installed, 2 not tried" in said
    assert main(["gone", "holds", "--folder", str(planted)]) == 2
    assert main(["holds", "elsewhere", "--folder", str(planted)]) == 0
    with pytest.raises(SystemExit):
        main(["unknown", "--folder", str(planted)])


def test_the_page_has_a_row_for_each_script():
    folder = ROOT / "findings"
    page = (folder / "README.md").read_text(encoding="utf-8")
    scripts = {script.stem for script in folder.glob("*.sh")}
    assert scripts == {line.split("]")[0][3:] for line in page.splitlines() if line.startswith("| [")}
    for name in scripts:
        assert os.access(folder / f"{name}.sh", os.X_OK), name
        text = (folder / f"{name}.sh").read_text(encoding="utf-8")
        assert f"]({name}.sh)" in page and "conformance" not in text and "|| exit 4" in text, name
        assert "mktemp -d" in text and "rm -rf" in text and "expected: " in text and "seen: " in text, name
