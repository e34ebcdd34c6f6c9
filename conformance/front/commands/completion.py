"""``conformance completion``: a script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
import importlib

from conformance.process.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that is to read the script")


def run(given: argparse.Namespace) -> int:
    try:
        argcomplete = importlib.import_module("argcomplete")
    except ImportError:
        raise UserError("completion needs argcomplete: pip install argcomplete") from None
    print(argcomplete.shellcode(["conformance"], shell=given.shell))
    return 0
