"""``conformance check``: an ONNX file without a case file."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from conformance import option_types
from conformance.commands import TIMEOUT, add_store, ask, blocks, pairs
from conformance.errors import UserError
from conformance.records.sanitize import tell

if TYPE_CHECKING:
    from conformance.case.declaration import Case
    from conformance.records.record import Record

WITNESSES = ("openvino",)
"""Runtimes that are asked too where they are installed."""


_ALL = "fp32,fp16,int8"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the model; what it means is what is right")
    parser.add_argument(
        "other", type=Path, nargs="?", metavar="OTHER", help="a model that has to compute the same, run in its place"
    )
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=RANGE",
        help="sizes of an open dim, as in batch=1..8 (default: what works is found by trying); repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--precision", metavar="A,B",
        help=f"what to convert to (default: {_ALL}, of which int8 is reported and fails nothing)",
    )  # fmt: skip
    parser.add_argument("--specials", action="store_true", help="NaN, infinities and signed zeros too")
    parser.add_argument(
        "--examples", type=option_types.count(0), metavar="N", help="drawn shapes, besides the ends of all dims"
    )
    add_store(parser, "models")


def run(given: argparse.Namespace) -> int:
    """0; 1 where a cell fails or nothing could be compared. Raises UserError for files that cannot be checked."""
    from conformance.checks.file_sizes import working_sizes
    from conformance.checks.runner import Runner
    from conformance.plan.catalogue import plan
    from conformance.plan.settings import Settings
    from conformance.records import text
    from conformance.worker.warm import new_worker

    said = _describe_case(given)
    case = _case(given.file, said)
    records: list[Record] = []
    with new_worker() as worker:
        missing = [name for name in case.says.dims if name not in said["dims"]]
        if missing:
            said["dims"] = {**ask(worker, working_sizes, case), **said["dims"]}
            case = _case(given.file, said)
        if case.says.dims:
            tell("sizes: " + ", ".join(f"{name} {said['dims'][name]}" for name in case.says.dims))
        settings = Settings(store=given.store / "models", examples=given.examples)
        for record in Runner(settings, TIMEOUT, worker).each(plan(case)):
            records.append(record)
            tell(_reported(record) if _is_reported(record, given) else text.verdict(record.as_dict()))
            if record.status == "skipped":
                tell(f"  {record.reason}")
    counted = [one for one in records if not _is_reported(one, given)]
    for line in (*blocks(counted), *_summary(records), *_verdict(counted)):
        tell(line)
    compared = any(record.status == "passed" and record.examples and record.runtime for record in records)
    failed = any(record.status == "failed" and not _is_reported(record, given) for record in records)
    return 0 if compared and not failed else 1


def _is_reported(record: Record, given: argparse.Namespace) -> bool:
    """Return whether a failure is only told: nobody has asked for int8, and nothing is known of what it may cost."""
    from conformance.case.words import base_of

    return given.precision is None and base_of(record.precision) == "int8" and record.status == "failed"


def _reported(record: Record) -> str:
    return f"below   {record.id}: {record.reason} (not counted; --precision int8 counts it)"


def _describe_case(given: argparse.Namespace) -> dict[str, Any]:
    """Return what a case file would say.

    Raises UserError for files and options that make no case.
    """
    from conformance.case.onnx_interface import NotOnnx, header
    from conformance.case.precision import INT8_OPSET
    from conformance.case.words import Precision

    dims = pairs(given.dim, "--dim")
    try:
        told = header(given.other or given.file)
    except OSError as error:
        raise UserError(f"{given.other or given.file} cannot be read: {error.strerror or error}") from None
    except NotOnnx as error:
        raise UserError(f"{given.other or given.file}: {error}") from None
    precisions = [word.strip() for word in (given.precision or _ALL).split(",") if word.strip()]
    for word in precisions:
        if word not in get_args(Precision):
            raise UserError(f"--precision: there is no '{word}'; {', '.join(get_args(Precision))}")
    if "int8" in precisions and told.opset < INT8_OPSET:
        tell(f"int8: left out, as it needs opset {INT8_OPSET}, and the model is at {told.opset}")
        precisions.remove("int8")
    target: dict[str, Any] = {"opsets": [told.opset]}
    if given.other is not None:
        target["file"] = Path(os.path.relpath(given.other, given.file.parent)).as_posix()
    specials = {} if given.specials else {"specials": False}
    return {
        "about": "conformance check", "onnx": given.file.name, "dims": dims, "export": {"onnx": target},
        "runtimes": ["onnxruntime", *filter(_installed, WITNESSES)],
        **specials, "precisions": {word: {} for word in precisions if word != "fp32"},
    }  # fmt: skip


def _installed(runtime: str) -> bool:
    from conformance.runtimes import registry

    return registry.absence(runtime) is None


def _case(file: Path, said: dict[str, Any]) -> Case:
    from conformance.case.case_file import cases_of
    from conformance.case.document import Document

    name = re.sub(r"\W", "_", file.stem)
    name = name if re.match(r"[A-Za-z_]", name) else f"model_{name}"
    # dims that are open and not given yet have the range of a case that says none
    cases, problems = cases_of(name, dict(said), Document(file.absolute(), {}, {(name,): (1, 1)}))
    if problems:
        raise UserError("\n".join([str(file), *(f"  {problem.message}" for problem in problems)]))
    return cases[0]


def _verdict(records: Sequence[Record]) -> Iterator[str]:
    """Say in which runtimes and precisions the file is right, and what that was compared with."""
    right: dict[str, list[str]] = {}
    for record in records:
        if record.check == "accuracy" and record.status == "passed" and record.examples and record.runtime:
            right.setdefault(record.runtime, []).append(record.precision)
    if right and not any(record.status == "failed" for record in records):
        told = "; ".join(f"{runtime} in {', '.join(precisions)}" for runtime, precisions in right.items())
        yield f"right: {told}"
        yield "compared with what the file itself says; how it was exported is not checked"


def _summary(records: Sequence[Record]) -> Iterator[str]:
    """Tell the cost of each precision, and the time of an example in each runtime."""
    for record in records:
        sqnr = (record.fidelity or {}).get("sqnr")
        if sqnr is not None:
            yield f"{record.precision} against the file's own meaning: {float(sqnr):.1f} dB SQNR"
    for record in records:
        count = record.examples + record.ill_conditioned + record.nothing
        if record.check == "accuracy" and record.status == "passed" and count:
            spent = record.seconds.get("run", 0.0) / count
            yield f"{record.runtime} {record.precision}: {1000 * spent:.3g} ms an example, of {count} drawn ones"
