"""``conformance run``: the suite on case files, by pytest."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence


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
    return subprocess.call([sys.executable, "-m", "pytest", "--pyargs", "conformance", "--conformance-run", *words])
