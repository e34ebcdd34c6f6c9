"""``conformance run``: the suite on case files, by pytest."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.process.worker.reserved import is_reserved, names_of

_START = "import sys; del sys.path[: sys.path[0] == '']; from conformance.front.commands.run import main; main()"
"""Run without the working directory on ``sys.path``, where a folder ``conformance`` would hide this package."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="CASES",
        help="case files or folders (default: cases/), and options: those of docs/options.md, such as --baseline, "
        "--runtime, --explain and -k, and all of pytest",
    )  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Return pytest's exit code: 0, 1 where cells are red, 5 where none ran."""
    return start(given.words)


def start(words: Sequence[str]) -> int:
    """Start pytest with words of its own or of the suite, and return its exit code."""
    # the plugin by name, since PYTEST_DISABLE_PLUGIN_AUTOLOAD may keep out what is only installed
    suite = ("-p", "conformance.plugin", "--pyargs", "conformance", "--conformance-run")
    return subprocess.call([sys.executable, "-c", _START, *suite, *words])


def main() -> None:
    """Run pytest as ``python -m pytest`` does, with the working directory first on ``sys.path``; but last where a
    file in it would hide a module of Python, or one that runs the cells."""
    import pytest

    here = Path.cwd()
    hides = [*filter(is_reserved, names_of(here)), *here.glob("conformance")]
    sys.path.insert(len(sys.path) if hides else 0, str(here))
    sys.argv[0] = "conformance run"
    sys.exit(pytest.console_main())
