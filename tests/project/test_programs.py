"""Nothing but Python is needed by surprise: what tests start is named, and is skipped or fails where it is not."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import open_site
from tests.kit import browser, programs
from tests.kit.runs import ROOT

TESTS = """
import os, subprocess
import pytest
from tests.kit import browser

def test_wants_a_browser():
    subprocess.run([browser.find()], check=True)

@pytest.mark.needs("browser")
def test_says_that_it_wants_one():
    subprocess.run([browser.find()], check=True)
"""
"""The first as one was that nobody had run on a machine without a browser."""
UNKNOWN = "import subprocess\ndef test_wants_more():\n    subprocess.run(['planted'], check=True)\n"
SKIPPED = f"no browser ({', '.join(browser.NAMES)}): install it, on Debian chromium"
UNKNOWN_WORD = "CONFORMANCE_REQUIRE: unknown 'brwser'; known are browser, compiler, git"


def script(file: Path, text: str = "") -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """The environment of CI, on a host on which everything is installed, and one program more."""
    for name in ("planted", *(name for need in programs.NEEDS.values() for name in need.programs)):
        script(tmp_path / "installed" / name)
    (tmp_path / "temporary").mkdir()
    own = {"TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    own |= {"CI": "true", programs.REQUIRE: "", "PATH": f"{tmp_path / 'installed'}{os.pathsep}{os.environ['PATH']}"}
    return {**{name: text for name, text in os.environ.items() if name != "CONFORMANCE_BROWSER"}, **own}


def run_tests(folder: Path, text: str, environment: dict[str, str], *fresh: str) -> str:
    """Return what pytest prints of tests; ``fresh`` are the words before a line of shell that it is run by."""
    (folder / "test_planted.py").write_text(text, encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-rfs", "-p", "tests.kit.needs", "test_planted.py"]
    command = [*fresh, shlex.join(words)] if fresh else words
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)
    return done.stdout + done.stderr


def test_ci_first_runs_the_command_of_the_readme_where_a_test_that_wants_a_browser_fails(tmp_path, host):
    """``.ci/run`` ends with its first program, which notes how it was started; that is done with the tests above."""
    note = shlex.quote(str(tmp_path / "started"))
    for name in ("apt-get", "python3"):
        script(tmp_path / "stand-ins" / name, f'printf "%s\\0" "$0" "$@" > {note}\nexit 1')
    path = f"{tmp_path / 'stand-ins'}{os.pathsep}{host['PATH']}"
    run = tmp_path / ".ci" / "run"  # not beside the environments of this checkout, in which it would go on
    run.parent.mkdir()
    run.write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tmp_path / "reports").mkdir()
    ended = subprocess.run(["bash", str(run)], env={**host, "PATH": path}, capture_output=True)
    program, *fresh, command, _ = (tmp_path / "started").read_text(encoding="utf-8").split("\0")
    assert Path(program).name == "python3" and ended.returncode == 1
    assert f"\n    {command}\n" in (ROOT / "README.md").read_text(encoding="utf-8") and "pytest tests" in command
    surroundings = "def test_nobody_says_that_this_is_ci():\n    assert 'CI' not in os.environ\n"
    said = run_tests(tmp_path, TESTS + surroundings, host, sys.executable, *fresh)
    assert "FAILED test_planted.py::test_wants_a_browser" in said and SKIPPED in said, said
    assert "1 failed, 1 passed, 1 skipped" in said


def test_a_fresh_machine_has_none_of_what_may_be_missing(host, monkeypatch):
    monkeypatch.setenv("PATH", host["PATH"])
    assert [word for word in programs.NEEDS if programs.find_lack(word)] == []
    with programs.fresh_machine() as environment:
        monkeypatch.setenv("PATH", environment["PATH"])
        assert all(map(shutil.which, ("python3", *programs.EVERYWHERE)))
        for word, need in programs.NEEDS.items():
            assert not any(programs.find(word)) and need.install in str(programs.find_lack(word))


def test_where_all_is_installed_a_test_that_starts_what_it_is_not_marked_with_fails(tmp_path, host):
    said = run_tests(tmp_path, TESTS + UNKNOWN, host)
    assert "the test starts chromium: mark it needs('browser'), or do without" in said, said
    assert "the test starts planted: name that in tests/kit/programs.py, or do without" in said
    assert "2 failed, 1 passed" in said


@pytest.mark.parametrize("required, there, said", [
    ("browser,git", False, "CONFORMANCE_REQUIRE asks for it"), ("compiler", False, SKIPPED),
    ("browser", True, "1 passed"), ("git, brwser", True, f"ERROR: {UNKNOWN_WORD}"),
])  # fmt: skip
def test_a_program_that_is_required_is_no_reason_to_skip(tmp_path, host, required, there, said):
    host |= {programs.REQUIRE: required} | ({} if there else {"PATH": str(tmp_path)})
    found = run_tests(tmp_path, TESTS.replace("def test_wants", "def wants"), host)
    assert said in found and ("1 error" in found) == ("asks for it" in said), found


@pytest.mark.parametrize("required, wrong", [
    ("", None), ("compiler", None), ("browser", "CONFORMANCE_REQUIRE asks for a browser"), ("brwser", UNKNOWN_WORD),
])  # fmt: skip
def test_the_documentation_is_not_opened_without_a_browser(tmp_path, monkeypatch, capsys, required, wrong):
    monkeypatch.delenv("CONFORMANCE_BROWSER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(programs.REQUIRE, required)
    assert open_site.main(tmp_path) == wrong
    assert (SKIPPED in capsys.readouterr().out) == (wrong != UNKNOWN_WORD)


def test_the_table_names_every_program():
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    rows = [
        f"| `{word}` | {', '.join(f'`{name}`' for name in need.programs)} | {need.purpose} | `{need.install}` |"
        for word, need in programs.NEEDS.items()
    ]
    assert re.findall(r"^\| `\w+` \| `.*\| `[^|]*` \|$", page, re.M) == rows
    assert ", ".join(f"`{name}`" for name in programs.EVERYWHERE) in page.replace("\n", " ")
