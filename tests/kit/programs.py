"""The programs beside Python that tests and documentation start, and a machine that has none that may be missing.

``python3 -m tests.kit.programs COMMAND`` runs a command as on a fresh machine: Python, and what every Linux has. It
takes only the standard library, as it runs before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit import browser

REQUIRE = "CONFORMANCE_REQUIRE"
"""Names words of ``NEEDS``, separated by commas: what needs these fails where it would be skipped."""


@dataclass(frozen=True)
class Need:
    """``programs`` that are started for ``purpose``, and the Debian package to ``install`` for them."""

    programs: tuple[str, ...]
    purpose: str
    install: str


EVERYWHERE = ("bash", "cat", "cp", "mkdir", "sh", "sleep", "touch", "true")
"""What tests start without a word, as a Linux without these is none on which Python's own ``venv`` is used."""

NEEDS = {
    "browser": Need(browser.NAMES, "the report's page and the documentation, opened in any one of them", "chromium"),
    "compiler": Need(("cc", "gcc", "g++"), "operators in C++, TensorRT's plugins, other processors", "g++"),
    "git": Need(("git",), "`--changed-since`, `conformance ci`, merged baselines", "git"),
}
"""What a test has to be marked with (``needs``) to start it."""


def find(word: str) -> list[str | None]:
    """Return where the programs of a word of ``NEEDS`` are, None for one that is missing. Any one browser will do."""
    return [browser.find()] if word == "browser" else [shutil.which(name) for name in NEEDS[word].programs]


def find_lack(word: str) -> str | None:
    """Return a line that says what to install where a program of a word of ``NEEDS`` is missing, else None."""
    if all(find(word)):
        return None
    return f"no {word} ({', '.join(NEEDS[word].programs)}): install it, on Debian {NEEDS[word].install}"


def read_required() -> set[str]:
    """Return the words in ``CONFORMANCE_REQUIRE``. Raises ValueError where nobody knows one of them."""
    words = {one.strip() for one in os.environ.get(REQUIRE, "").split(",")} - {""}
    if unknown := words - NEEDS.keys():
        raise ValueError(f"{REQUIRE}: unknown {', '.join(map(repr, sorted(unknown)))}; known are {', '.join(NEEDS)}")
    return words


@contextmanager
def fresh_machine() -> Iterator[dict[str, str]]:
    """Give the environment of a process that finds Python and ``EVERYWHERE``, and nothing that a login or CI sets."""
    left_out = ("CI", "LANG", "LANGUAGE", REQUIRE, "CONFORMANCE_BROWSER")
    kept = {name: text for name, text in os.environ.items() if name not in left_out and not name.startswith("LC_")}
    with tempfile.TemporaryDirectory(prefix="programs-") as name:
        for program in EVERYWHERE:
            Path(name, program).symlink_to(shutil.which(program) or f"/bin/{program}")
        # no link, from which an environment would take the place of its Python
        python = Path(name, "python3")
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        yield {**kept, "PATH": name}


def main() -> int:
    with fresh_machine() as environment:
        # found here, as Popen looks for it on the path of this process
        command = [shutil.which(sys.argv[1], path=environment["PATH"]) or sys.argv[1], *sys.argv[2:]]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
