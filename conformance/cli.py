"""The command ``conformance``: everything that is not a test run."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from conformance import __version__
from conformance.errors import UserError
from conformance.records.sanitize import block, visible

COMMANDS = {
    "new": "write a starter case file that passes as it is",
    "run": "run case files: export, run, compare, and say who is at fault",
    "check": "run an ONNX file in every runtime and precision, or hold another file against it",
    "watch": "run the cells whose files change, while you work on them",
    "schema": "print the JSON Schema of case files, for editors",
    "sensitivity": "rank nodes by what keeping them in fp32 wins back",
    "align": "PyTorch against ONNX layer by layer: where they part first",
    "mutants": "would your cases notice a wrong export? Plants defects and tells which survive",
    "report": "a run as a page, a summary for CI, annotations, or data",
    "explain": "all that is known of a finding or a cell, and on what its result depends",
    "findings": "the causes that the red cells of a run come to",
    "diff": "what is better and worse in one run than in another",
    "accept": "make a baseline agree with a run, in what is named",
    "merge": "join the runs of several jobs",
    "clean": "free what a store has kept of models, answers, coverage, causes, engines and failing draws",
    "pack": "write cells into a bundle, to be run where there is no PyTorch",
    "replay": "run a bundle on this host",
    "versions": "run cells under several versions of a runtime or of torch, and find the release that changed one",
}
"""Each is a module of ``conformance.commands``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, 1 for what was found, 2 for what the user has to correct, 3 for a mistake of ours."""
    parser = argparse.ArgumentParser(
        prog="conformance", description="Work on case files and runs; pytest runs cells."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        _module(name).arguments(commands.add_parser(name, help=text, description=text))
    words = sys.argv[1:] if arguments is None else [*arguments]
    if words[:1] == ["run"] and not {"-h", "--help"} & {*words}:
        return int(_module("run").start(words[1:]))  # pytest reads its options itself
    given = parser.parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # text of a run may have what the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        code: int = _module(given.command).run(given)
    except (UserError, OSError) as error:
        print(block(f"conformance {given.command}: {error}"), file=sys.stderr)
        return 2
    except Exception:  # a mistake of ours; its traceback is printed
        print(visible(traceback.format_exc()), end="", file=sys.stderr)
        text = "this is a mistake in the harness; please report it with the lines above"
        print(f"conformance {given.command}: {text}", file=sys.stderr)
        return 3
    return code


def _module(name: str) -> Any:
    return importlib.import_module(f"conformance.commands.{name}")


if __name__ == "__main__":
    sys.exit(main())
