"""From an ONNX file and the options of ``conformance check`` to what a case file would say of it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from conformance.compare.noise import FLOOR
from conformance.front.commands import pairs
from conformance.process.errors import UserError, did_you_mean
from conformance.process.worker import memory
from conformance.runtimes import registry

if TYPE_CHECKING:
    from conformance.case.files.declaration import Case
    from conformance.cells.check_models import Model, Say

ALL = "fp32,fp16,int8"
"""The precisions that a file is checked in where nobody names any."""
WITNESSES = tuple(runtime.name for runtime in registry.RUNTIMES if runtime.witness)
"""Runtimes that are asked too where they are installed."""

RUNNABLE = tuple(name for name in registry.IN_CASES if name != "onnx-reference")
"""The runtimes that may run a file; ONNX's evaluator says what is right."""


LONG = 30.0
"""Seconds from which on quantizing is left out where nobody has asked for it."""

_CALIBRATED = ("int8", "int4", "int2", "fp8", "fp4")
"""Precisions whose cost depends on the data, of which ``check`` draws its own: without a limit of the user's, a file
is called wrong where it gives more noise than signal, and its decibels are told."""


def describe_left_out(named: str | None) -> Iterator[str]:
    """Yield a line for each runtime of another package that runs no model here; ``named`` is ``--runtime``."""
    yield from registry.LEFT_OUT.values()
    for runtime in registry.RUNTIMES if named is None else ():
        why = registry.absence(runtime.name) if runtime.interface and runtime.witness else None
        if why is not None:
            yield f"{runtime.title}: left out, as {why}"


def _runtimes(text: str | None) -> list[str]:
    """Return the runtimes of ``--runtime A,B``; raise UserError for one that there is not."""
    if text is None:
        return ["onnxruntime", *(name for name in WITNESSES if registry.absence(name) is None)]
    names = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in names or [text]:
        if name == "onnx-reference":
            raise UserError("--runtime: onnx-reference says what is right; name those that are compared with it")
        if name not in RUNNABLE:
            why = registry.LEFT_OUT.get(name, f"there is no '{name}'{did_you_mean(name, RUNNABLE)}")
            raise UserError(f"--runtime: {why}")
    return names


def _tolerance(texts: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the key ``tolerance`` of a case for ``PRECISION:KEY=VALUE,...``; raise UserError for another text."""
    from conformance.case.files.must_hold import OutputTolerance
    from conformance.results.records.words import Precision

    tolerance: dict[str, dict[str, object]] = {}
    for text in texts:
        before, colon, limits = text.rpartition(":")
        precision = before.strip() if colon else "fp32"
        if precision not in get_args(Precision):
            raise UserError(f"--tolerance {text}: there is no '{precision}'; {', '.join(get_args(Precision))}")
        if precision in tolerance:
            raise UserError(f"--tolerance {text}: the limits of {precision} are given twice; put them into one")
        said = pairs((part.strip() for part in limits.split(",")), "--tolerance")
        odd = next((name for name in said if name not in OutputTolerance.model_fields), None)
        if odd is not None:
            raise UserError(
                f"--tolerance {text}: there is no '{odd}'{did_you_mean(odd, OutputTolerance.model_fields)}"
            )
        tolerance[precision] = {**said, "because": "--tolerance says so"}
    return tolerance


def describe_case(given: argparse.Namespace, file: Path, other: Path | None, say: Say) -> dict[str, object]:
    """Return what a case file would say.

    Raises UserError for files and options that make no case.
    """
    from conformance.case.files.onnx_header import NotOnnx, header
    from conformance.case.files.onnx_interface import exactly
    from conformance.case.files.precision import INT8_OPSET
    from conformance.results.records.words import CONVERTED

    dims = pairs(given.dim, "--dim")
    converted = None if other is None else conversion_of(file, other)
    read = file if converted or other is None else other
    try:
        told = header(read)
    except OSError as error:
        raise UserError(f"{read} cannot be read: {error.strerror or error}") from None
    except NotOnnx as error:
        raise UserError(f"{read}: {error}") from None
    _compare_with_memory(read, told.beside)
    already = None if other is not None or given.precision else precision_left_in(file)
    if already is not None:
        how = ", in decibels" if already in _CALIBRATED else ""
        say(f"{file.name} is a model in {already} already: compared with what it means{how}")
    asked = "" if converted or already else given.precision or ALL
    precisions = [word.strip() for word in asked.split(",") if word.strip()]
    for word in precisions:
        if word not in ("fp32", *CONVERTED):
            raise UserError(f"--precision: there is no '{word}'; fp32, {', '.join(CONVERTED)}")
    if "int8" in precisions and told.opset < INT8_OPSET:
        say(f"int8: left out, as it needs opset {INT8_OPSET}, and the model is at {told.opset}")
        precisions.remove("int8")
    long = _seconds_to_quantize(read) if "int8" in precisions else 0.0
    if long >= LONG:
        why = f"ONNX Runtime's quantizer takes time with the square of the nodes, about {long:.0f} s for this graph"
        say(f"int8: {why}" if given.precision else f"int8: left out, as {why} (--precision int8 converts it)")
        if not given.precision:
            precisions.remove("int8")
    target: dict[str, object] = {"opsets": [told.opset]}
    conversions: dict[str, dict[str, object]] = {word: {} for word in precisions if word != "fp32"}
    if already in _CALIBRATED:
        conversions = {already: {"file": file.name}}
    if other is not None:
        second = Path(os.path.relpath(other, file.parent)).as_posix()
        if converted is None:
            target["file"] = second
        else:
            conversions = {converted: {"file": second}}
            say(f"{other.name} is a model in {converted}: compared with {file.name} in decibels, and each runtime "
                "with what it means itself")  # fmt: skip
    values = pairs(given.input, "--input", ".+", empty=True)  # of names such as serving_default_x:0
    try:
        inputs = exactly(told, values)
    except ValueError as error:
        raise UserError(f"--input: {error}") from None
    more: dict[str, object] = {}
    tolerance = _tolerance(given.tolerance)
    if converted in _CALIBRATED:
        unknown = "nobody has said on which data the file is to be good"
        tolerance = {converted: {"sqnr": FLOOR, "because": unknown}, **tolerance}
    if tolerance:
        more["tolerance"] = tolerance
    if given.session:
        more["onnxruntime"] = {"config": pairs(given.session, "--session", r"[\w.]+")}
    specials = {} if given.specials else {"specials": False}
    return {
        "about": "conformance check", "onnx": file.name, "dims": dims, "export": {"onnx": target},
        "runtimes": _runtimes(given.runtime), **({"inputs": inputs} if inputs else {}), **specials, **more,
        "precisions": conversions,
    }  # fmt: skip


def _seconds_to_quantize(file: Path) -> float:
    """Estimate the seconds that converting a file to int8 takes; 0 where it cannot be read, which is reported
    elsewhere."""
    from conformance.models.precision.int8 import expected_seconds
    from conformance.process.errors import or_else
    from conformance.runtimes.onnxgraph.mapped import read_graph

    return or_else(0.0, lambda: expected_seconds(read_graph(file).graph))


def _compare_with_memory(file: Path, beside: Iterable[str]) -> None:
    """Raise UserError for a model that is larger than all memory that there is, with the files beside it, before
    anybody reads it."""
    places = [file, *(file.parent / name for name in beside)]
    size, room = sum(place.stat().st_size for place in places if place.is_file()), memory.machine_memory()
    if size > room:
        raise UserError(
            f"{file.name} and its weights take {size / memory.GIB:.3g} GiB, and there are {room / memory.GIB:.3g} "
            "GiB of memory: check it on a host with a multiple of that; nothing of it was read here"
        )


def conversion_of(file: Path, other: Path) -> str | None:
    """Return the precision that the second of two files was converted to, though its weights are floats again; None
    where it is no conversion of the first."""
    from conformance.models.precision.folded import folded_precision
    from conformance.process.errors import or_else
    from conformance.runtimes.onnxgraph.mapped import mapped

    first, second = map(precision_left_in, (file, other))
    if first is second is None:
        return or_else(None, lambda: folded_precision(mapped(file), mapped(other)))
    return None if first == second else second


def precision_left_in(file: Path) -> str | None:
    """Return the precision that a conversion has left in a file; None also where it cannot be read, which is reported
    elsewhere."""
    from conformance.models.precision.by_others import precision_of
    from conformance.process.errors import or_else
    from conformance.runtimes.onnxgraph.mapped import read_graph

    return or_else(None, lambda: precision_of(read_graph(file)))


def floats_left_in(file: Path) -> str:
    """Return the precision of most of a file's floats; fp32 also where it cannot be read."""
    from conformance.models.precision.by_others import floats_of
    from conformance.process.errors import or_else
    from conformance.runtimes.onnxgraph.mapped import read_graph

    return or_else("fp32", lambda: floats_of(read_graph(file)))


def recorded_key(given: argparse.Namespace, file: Path, say: Say) -> dict[str, object]:
    """Return the key ``recorded`` of a case, if there is recorded data: what is named, or what lies beside the model
    and fits it.

    Raises UserError for named data that cannot be used, and where recorded data alone is to run and there is none.
    """
    from conformance.process.disk.recorded_data import beside, read_recorded
    from conformance.process.disk.recorded_tensors import read_interface

    places: list[Path] = list(given.data)
    if places:
        data = read_recorded(places, read_interface(file))
        if data.left_out or not data.sets:
            raise UserError("\n".join(data.left_out) or f"{file}: there is no set in {', '.join(map(str, places))}")
    elif folders := beside(file):
        interface = read_interface(file)
        for folder in folders:
            try:
                data = read_recorded([folder], interface)
            except UserError as error:
                say(f"left out {error}")
                continue
            for problem in data.left_out:
                say(f"left out {problem}")
            places += [folder] if data.sets else []
    if not places and given.recorded:
        raise UserError(f"{file}: there is no recorded data beside it that fits; --data PATH says where it is")
    names = [Path(os.path.relpath(place, file.parent)).as_posix() for place in places]
    return {"recorded": {"data": names, "only": bool(given.recorded)}} if names else {}


def case_of(model: Model, said: dict[str, object]) -> Case:
    from conformance.case.files.case_file import cases_of
    from conformance.case.files.document import Document

    # dims that are open and not given yet have the range of a case that says none
    document = Document(model.file.absolute(), {}, {(model.name,): (1, 1)})
    cases, problems = cases_of(model.name, dict(said), document)
    if problems:
        raise UserError("\n".join([str(model.file), *(f"  {problem.message}" for problem in problems)]))
    return cases[0]
