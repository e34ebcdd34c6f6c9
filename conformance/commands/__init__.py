"""The commands, one module each: ``arguments`` adds the options to a parser, ``run`` does the work and returns the
exit code.

A command raises UserError or OSError for what the user has to correct.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path


def selecting(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """The arguments that select cells: ``paths``, ``words`` (``-k``), and an option for each of the names."""
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="case files or folders (default: cases/)")
    parser.add_argument(
        "-k", dest="words", default="", metavar="EXPR", help="only cells that this selects, as with pytest's -k"
    )
    for name in names:
        parser.add_argument(f"--{name}", metavar="A,B", help=f"only cells of these {name}s")
