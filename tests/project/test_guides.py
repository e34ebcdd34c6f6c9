"""The guides say what happens: their files are cases, their commands exist, and the quick ones run as shown.

In a page, a line of a file name in backquotes and a colon stands before a block that is this file. A ``console``
block has commands after ``$`` and what they print; ``...`` leaves lines out. A comment before a block, ``<!-- not run
by the tests: why -->``, keeps it from being run here. Numbers, ids and the words of a loss may differ between hosts.
"""

import argparse
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.case.files.case_file import load
from conformance.front.cli import COMMANDS
from tests.kit.runs import AS_RUN, run_command, run_pytest

ROOT = Path(__file__).parent.parent.parent
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PARTS = re.compile(
    r"^`(?P<file>[\w./-]+)`:\n\n```\w+\n(?P<text>.*?)^```$"
    r"|(?:^<!-- not run by the tests: (?P<why>[^>\n]+) -->\n)?^```console\n(?P<console>.*?)^```$",
    re.M | re.S,
)
OTHERS = ("pip", "polygraphy", "optimum-cli", "python")
"""Programs that guides call besides this project's."""
NEEDS = {"hugging-face": "transformers"}
"""Packages without which the commands of a guide are not run."""


@dataclass(frozen=True)
class File:
    name: str
    text: str

    def write(self, folder: Path) -> Path:
        file = folder / self.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.text, encoding="utf-8")
        return file


@dataclass(frozen=True)
class Command:
    line: str
    shown: tuple[str, ...]
    not_run: str
    """Why the tests do not run it."""


def parts(page: Path) -> Iterator[File | Command]:
    """The files and commands of a guide, in order."""
    for found in PARTS.finditer(page.read_text(encoding="utf-8")):
        if found["file"]:
            yield File(found["file"], found["text"])
            continue
        for line, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", found["console"], re.M):
            yield Command(line, tuple(shown.splitlines()), found["why"] or "")


def commands() -> list[tuple[str, Command]]:
    return [(page.name, part) for page in GUIDES for part in parts(page) if isinstance(part, Command)]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_case_of_a_guide_loads(page, tmp_path):
    for part in parts(page):
        if isinstance(part, File):
            file = part.write(tmp_path)
            if file.suffix == ".py":
                compile(part.text, part.name, "exec")
            if file.suffix == ".yaml":
                assert load(file)


@pytest.mark.parametrize("page, command", commands(), ids=lambda one: one if isinstance(one, str) else one.line[:40])
def test_every_command_of_a_guide_parses(page, command):
    """The options of pytest are held against its help by tests/project/test_docs.py."""
    program, *words = shlex.split(command.line)
    if program == "conformance":
        parser = argparse.ArgumentParser(exit_on_error=False)
        assert words[0] in COMMANDS, page
        if words[0] != "run":  # which pytest reads
            arguments(words[0], parser)
            parser.parse_args(words[1:])
    else:
        assert program == "pytest" or program in OTHERS, (page, program)


def arguments(name: str, parser: argparse.ArgumentParser) -> None:
    importlib.import_module(f"conformance.front.commands.{name}").arguments(parser)


def alike(line: str) -> str:
    """A line without what may differ between hosts: numbers, ids, and how far below the rounding a loss is."""
    line = re.sub(r"\b(no loss|all lost|-?\d+\.\d+ dB)", "LOSS", line)
    line = re.sub(r"^[0-9a-f]{8}\b", "ID", line)
    line = re.sub(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", "N", line)
    return re.sub(r"\s+", " ", line).strip()


def missing(shown: tuple[str, ...], said: str) -> list[str]:
    """The lines that are shown and were not said, in this order; all but one that another line stands for is told."""
    if importlib.util.find_spec("openvino") is None:
        shown = tuple(line for line in shown if "openvino" not in line.lower())
    lost, lines = [], iter([alike(line) for line in said.splitlines()])
    for line in shown:
        if line.strip() not in ("", "...") and alike(line) not in lines:
            lost.append(line)
            lines = iter([alike(one) for one in said.splitlines()])
    return lost


RUN = [page for page in GUIDES if any(isinstance(part, Command) and not part.not_run for part in parts(page))]
QUICK = "hugging-face"
"""The guide whose commands take least."""


@pytest.mark.parametrize("page", [
    pytest.param(page, id=page.stem, marks=() if page.stem == QUICK else pytest.mark.thorough) for page in RUN
])  # fmt: skip
def test_what_a_guide_shows_is_what_happens(page, tmp_path):
    """In a folder of its own, with the files as they are where a command stands."""
    if page.stem in NEEDS:
        _installed(NEEDS[page.stem])
    for part in parts(page):
        if isinstance(part, File):
            part.write(tmp_path)
        elif not part.not_run:
            said = output(part.line, tmp_path)
            assert missing(part.shown, said) == [], f"{part.line}\n{said}"


def _installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def output(line: str, folder: Path) -> str:
    """What a command prints, with this checkout's package and no choice of this host's."""
    program, *words = shlex.split(line)
    if program == "python":
        done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr
    if (program, words[:1]) == ("conformance", ["run"]):
        program, words = "pytest", [*AS_RUN, *words[1:]]
    run = {"conformance": run_command, "pytest": run_pytest}[program]
    return run(folder, *words, COLUMNS="80").text
