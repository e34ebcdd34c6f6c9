"""The command ``conformance``: everything that is not a test run."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conformance import __version__
from conformance.process.errors import UserError, lacks_memory, limit_of_shell
from conformance.results.records.sanitize import block, visible


class Command(NamedTuple):
    about: str
    example: str


GROUPS = {
    "try": {
        "check": Command(
            "run an ONNX file in every runtime and precision, or compare two",
            "conformance check net.onnx --dim batch=1..8",
        ),
        "new": Command(
            "write a case file for a module, and find its inputs by trying",
            "conformance new lstm --from torch.nn.LSTM --with input_size=6 --with hidden_size=5",
        ),
        "run": Command(
            "run case files: export, run, compare, and say who is at fault", "conformance run cases -k asinh"
        ),
        "support": Command(
            "say which exporter suits a model, by what was measured",
            "conformance support torch.nn.TransformerEncoderLayer --with d_model=16 --with nhead=2",
        ),
        "watch": Command("run what depends on a file whenever you save it", "conformance watch -k asinh"),
    },
    "explain": {
        "findings": Command(
            "list the causes of failures, and what fixes them; accept them",
            "conformance findings reports/latest --fix all",
        ),
        "explain": Command(
            "show what is known of a finding or a cell, and what it depends on",
            "conformance explain 5fb81738",
        ),
        "align": Command(
            "compare PyTorch with ONNX operator by operator, and name the first wrong",
            "conformance align asinh --exporter dynamo",
        ),
        "sensitivity": Command(
            "rank nodes by what keeping them in fp32 wins back",
            "conformance sensitivity net --precision int8",
        ),
        "report": Command(
            "write a run as a page, a summary for CI, annotations, or data",
            "conformance report reports/latest --html report.html",
        ),
    },
    "gate": {
        "diff": Command(
            "list what is better and worse in one run than in another",
            "conformance diff reports/baseline.jsonl reports/latest",
        ),
        "accept": Command(
            "note in a baseline that a change is known, and why",
            "conformance accept reports/latest --baseline reports/baseline.jsonl --because 'fixed soon' '*resize*'",
        ),
        "ci": Command(
            "do what a job of CI does: run, compare, sum up, comment",
            "conformance ci --cases cases --baseline reports/baseline.jsonl",
        ),
        "merge": Command(
            "join the runs of several jobs", "conformance merge reports/whole reports/shard-1 reports/shard-2"
        ),
        "mutants": Command(
            "plant defects in exported models, and say which your cases miss",
            "conformance mutants -k flatten --min-kill 0.95",
        ),
    },
    "ship": {
        "pack": Command(
            "write cells into a bundle, to run where there is no PyTorch",
            "conformance pack bundle --runtime tensorrt",
        ),
        "replay": Command("run a bundle on this host", "conformance replay bundle --runtime onnxruntime"),
        "versions": Command(
            "run cells under several versions of a runtime or of torch, and find the release that changed one",
            "conformance versions bundle --runtime 'onnxruntime==1.27.*,latest'",
        ),
    },
    "maintain": {
        "doctor": Command("say what is installed, what runs here, and what a bug report needs", "conformance doctor"),
        "clean": Command("delete what the store keeps, or the oldest part of it", "conformance clean --limit 5GiB"),
        "schema": Command("print the JSON Schema of case files, or the mistakes in some", "conformance schema cases"),
        "completion": Command(
            "print a script with which a shell completes these commands",
            "conformance completion bash > ~/.local/share/bash-completion/completions/conformance",
        ),
    },
}
"""The commands by what one wants to do. Each is a module of ``conformance.front.commands``."""
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
TEXT = "Check that a PyTorch model computes the same after export; find who is at fault."
_INDENT = max(map(len, COMMANDS)) + 4


class _Overview(argparse.ArgumentParser):
    def format_help(self) -> str:
        """Return the commands by group, each with a line, and an example for each group."""
        lines = ["usage: conformance COMMAND ...", "", TEXT]
        for title, group in GROUPS.items():
            lines += ["", f"{title}:"]
            for name, (about, _) in group.items():
                first, *rest = textwrap.wrap(about, 80 - _INDENT)
                lines += [f"  {name:{_INDENT - 2}}{first}", *(f"{'':{_INDENT}}{line}" for line in rest)]
            lines.append(f"  example: {next(iter(group.values())).example}")
        return "\n".join([*lines, "", "conformance COMMAND --help lists the options of a command.", ""])


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    overview = _Overview(prog="conformance", description=TEXT)
    overview.add_argument("--version", action="version", version=__version__)
    commands = overview.add_subparsers(dest="command", metavar="COMMAND", parser_class=argparse.ArgumentParser)
    for name, (about, example) in COMMANDS.items():
        one = commands.add_parser(
            name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        _module(name).arguments(one)
    return overview


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, 1 for what was found, 2 for what the user has to correct, 3 for a mistake of ours."""
    known = parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how to go on
        importlib.import_module("argcomplete").autocomplete(known)
    words = sys.argv[1:] if arguments is None else [*arguments]
    if not words:
        known.print_help()
        return 2
    if words[:1] == ["run"] and not {"-h", "--help"} & {*words}:
        return int(_module("run").start(words[1:]))  # pytest reads its options itself
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # text of a run may have what the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        given = known.parse_args([*words[:1], *_standing(words), *words[1:]])
        code: int = _module(given.command).run(given)
    except (UserError, OSError) as error:
        print(block(f"conformance {words[0]}: {_sentence(error)}"), file=sys.stderr)
        return 2
    except Exception as error:  # a mistake of ours; its traceback is printed
        if lacks_memory(error):
            why = limit_of_shell() or "this host has no memory left: end other processes, or try smaller sizes"
            print(f"conformance {words[0]}: {why}", file=sys.stderr)
            return 2
        print(visible(traceback.format_exc()), end="", file=sys.stderr)
        text = "this is a mistake in the harness; please report it with the lines above"
        print(f"conformance {words[0]}: {text}", file=sys.stderr)
        return 3
    return code


_STORE = "align", "clean", "doctor", "explain", "findings", "mutants", "pack", "sensitivity", "versions"
_STANDING = {
    **dict.fromkeys(_STORE, ("store",)),
    "check": ("runtime", "precision", "examples", "budget", "store"),
    "watch": ("exporter", "opset", "runtime", "precision", "examples", "store", "store-limit", "cell-timeout"),
}
"""The options of a run that a command has with the same meaning, and takes from ``pyproject.toml`` too; ``replay``
runs where Python may be too old to read that."""


def _standing(words: Sequence[str]) -> list[str]:
    taken = _STANDING.get(words[0])
    if taken is None:
        return []
    said: list[str] = importlib.import_module("conformance.front.standing_options").options(
        Path.cwd(), words, taken=taken
    )
    return said


def _sentence(error: UserError | OSError) -> str:
    """Return what a command ends with; of a file that cannot be used which it is, why, and what to do."""
    if isinstance(error, UserError) or not error.filename or not error.strerror:
        return str(error)
    text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    denied = error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    return f"{text}; run it in a folder that you may write to" if denied else text


def _module(name: str) -> Any:
    return importlib.import_module(f"conformance.front.commands.{name}")


if __name__ == "__main__":
    sys.exit(main())
