"""``conformance support``: what is known of the operators of a model, and with which exporter it is best exported."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from conformance import __version__
from conformance.front.commands import add_with, ask, outputs_of, pairs, width
from conformance.front.commands.module_names import locate_module, plain_value
from conformance.process.errors import UserError, require_torch
from conformance.results.records.sanitize import command_line, tell

if TYPE_CHECKING:
    from conformance.extras.support.called_operators import CalledOperator

_EXITS = """exit codes:
  0  no operator is known to fail with the exporter that is named; of an ONNX file: no defect is known
  1  with each exporter an operator fails; of an ONNX file: a defect is known
  2  what was given has to be corrected
  5  no operator was measured"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"{parser.epilog}\n\n{_EXITS}"
    parser.add_argument(
        "model", metavar="MODEL",
        help="a module, as torch.nn.Transformer, mypackage.net.Net or ./audio.py:Net, whose inputs are found by "
        "trying; a program that torch.export.save wrote (.pt2), or an ONNX file, of which nothing is run",
    )  # fmt: skip
    add_with(parser)
    parser.add_argument(
        "--input", dest="inputs", action="append", default=[], metavar="NAME=TYPE",
        help="the type of an input where it is known, as in x='float32[batch, 8]'; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--table", type=Path, metavar="FILE",
        help="another table of measured operators than the one of this release, as python -m evidence operators "
        "writes it",
    )  # fmt: skip
    parser.add_argument(
        "--output", action="append", default=[], metavar="json[=FILE]",
        help="print all that is known as JSON, with all other text on standard error; or write it to a file",
    )  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """0 where no operator is known to fail, 1 where one does with each exporter, 5 where none was measured.

    Raises UserError for what is no module, no file, and cannot be read, run or traced.
    """
    outputs = outputs_of(given.output, ["json"])
    kind = Path(given.model).suffix.lower()
    if kind in (".onnx", ".pt2") and (given.given or given.inputs):
        raise UserError("--with and --input are about a module; a file has its own")
    code, data, lines = _of_file(given) if kind == ".onnx" else _of_program(given, is_file=kind == ".pt2")
    wrapped = textwrap.TextWrapper(width(), subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    for line in lines:
        for part in wrapped.wrap(line):
            tell(part, sys.stderr if None in outputs.values() else None)
    for file in outputs.values():
        from conformance.front.commands.check_report import write

        write(file, json.dumps({"conformance": __version__, "exit_code": code, **data}, indent=1) + "\n")
    return code


def _of_file(given: argparse.Namespace) -> tuple[int, dict[str, object], list[str]]:
    """Return the exit code, the data and the lines of an ONNX file."""
    from conformance.extras.support.advice import describe_known
    from conformance.extras.support.called_operators import operators_of_file
    from conformance.results.records.known import of_operators

    found = operators_of_file(Path(given.model))
    names = {one.name for one in found}
    known = list(of_operators(names))
    hit = {name for one, _ in known for name in one.operators & names}
    lines = [f"{len(hit)} of {len(names)} operators of {given.model} have a known defect in what is installed."]
    lines += describe_known(known, names)
    if others := sorted(names - hit):
        lines.append(f"no defect is known of {', '.join(others)}")
    lines.append(f"others may show when it runs: {command_line(['conformance', 'check', given.model])}")
    told = [{"name": one.name, "operators": sorted(one.operators & names), "who": sorted(one.who),
             "errors": sorted(one.errors), "package": one.package, "version": version}
            for one, version in known]  # fmt: skip
    data = {"model": given.model, "operators": [one.as_dict() for one in found], "known": told}
    return int(bool(known)), data, lines


def _of_program(given: argparse.Namespace, *, is_file: bool) -> tuple[int, dict[str, object], list[str]]:
    """Return the exit code, the data and the lines of a module, or of a program that was saved."""
    from conformance.extras.support import advice
    from conformance.extras.support.called_operators import operators_of_program
    from conformance.results.records.environment import versions
    from conformance.results.records.known import of_operators
    from conformance.results.records.operator_table import EXPORTERS, FILE, read_table

    table, installed = read_table(given.table or FILE), versions()
    called = operators_of_program(Path(given.model)) if is_file else _of_module(given)
    support = advice.support_of(called, table)
    bases = {advice.base_of_operator(one.name) for one in called}
    known = list(of_operators(bases, EXPORTERS))
    lines = [
        *advice.describe_advice(given.model, support, table),
        *advice.describe_operators(support),
        *advice.describe_known(known, bases),
        *advice.describe_measurement(table, installed),
    ]
    if not is_file:
        lines.append(f"to know of this model: {command_line(['conformance', 'new', 'net', '--from', given.model])}")
    data = {"model": given.model, "installed": installed, **support.as_dict(table)}
    return support.exit_code, data | {"known": [one.name for one, _ in known]}, lines


def _of_module(given: argparse.Namespace) -> list[CalledOperator]:
    """Return what a module calls, found in a process of its own."""
    from conformance.extras.draft.drafting import Request
    from conformance.extras.support.called_operators import operators_of_module
    from conformance.process.worker.warm import new_worker

    require_torch("finding the operators of a module needs")
    folder, name = locate_module(given.model)
    made = {key: plain_value(key, text) for key, text in pairs(given.given, "--with").items()}
    typed = ("conformance", "support", given.model, *(word for one in given.given for word in ("--with", one)))
    request = Request((folder or Path.cwd()).absolute(), name, made, pairs(given.inputs, "--input"), typed=typed)
    with new_worker(dynamo=True) as worker:
        found: list[CalledOperator] = ask(worker, operators_of_module, request)
        return found
