"""``conformance check``: ONNX files without a case file."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from conformance.front import option_types
from conformance.front.commands import TIMEOUT, add_store, ask, blocks, outputs_of
from conformance.front.commands.check_lines import (
    TO_CORRECT,
    describe_model,
    describe_narrow,
    describe_summary,
    describe_totals,
    describe_uncounted,
    describe_unfinished,
    describe_verdict,
)
from conformance.front.commands.file_cases import (
    ALL,
    RUNNABLE,
    WITNESSES,
    case_of,
    describe_case,
    describe_left_out,
    floats_left_in,
    recorded_key,
)
from conformance.front.commands.progress_lines import ProgressLines
from conformance.process.errors import UserError
from conformance.results.records.sanitize import tell

if TYPE_CHECKING:
    from conformance.case.files.declaration import Case
    from conformance.case.plan.cell import Cell
    from conformance.cells.check_models import CheckedModel, Model, Say
    from conformance.cells.runner import Runner
    from conformance.process.worker.isolation import OnWait, Worker
    from conformance.results.records.record import Record


See: TypeAlias = Callable[..., object]
"""Gets a record, and whether its failure is only ``reported``."""
_FORMATS = ("json", "junit")
_EXITS = """exit codes:
  0  all that was compared is right
  1  something is wrong
  2  a file or an option has to be corrected; the other files were checked
  5  nothing could be verified, and nothing is wrong
  130  Ctrl-C: the verdicts that there are were printed"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"{parser.epilog}\n\n{_EXITS}"
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH",
        help="models: files, folders with the .onnx files in and below them, and patterns such as 'nets/*.onnx'. "
        "What a file means is what is right; of exactly two files the second has to compute the same as the first",
    )  # fmt: skip
    parser.add_argument("--each", action="store_true", help="check two files each by itself too")
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=RANGE",
        help="sizes of an open dim, as in batch=1..8 (default: what works is found by trying); repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUES",
        help="the values of an input, as in axis=1 or size=1,3,4 (default: drawn by what reads it); repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--precision", metavar="A,B",
        help=f"what to convert to (default: {ALL}, of which int8 is reported and fails nothing)",
    )  # fmt: skip
    parser.add_argument(
        "--runtime", metavar="A,B",
        help=f"what runs the models: {', '.join(RUNNABLE)} (default: onnxruntime, and of "
        f"{' and '.join(WITNESSES)} what is installed)",
    )  # fmt: skip
    parser.add_argument(
        "--session", action="append", default=[], metavar="KEY=VALUE",
        help="a session option of ONNX Runtime, as in session.set_denormal_as_zero=1; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", action="append", default=[], metavar="[PRECISION:]KEY=VALUE,...",
        help="limits of error as a case has them, as in rtol=1e-3,atol=1e-5 (which is fp32) or fp16:sqnr=40; "
        "repeatable",
    )  # fmt: skip
    parser.add_argument("--specials", action="store_true", help="NaN, infinities and signed zeros too")
    parser.add_argument(
        "--examples", type=option_types.count(0), metavar="N", help="drawn shapes, besides the ends of all dims"
    )
    parser.add_argument("--budget", type=option_types.duration, metavar="TIME", help=option_types.BUDGET)
    parser.add_argument(
        "--data", action="append", default=[], type=Path, metavar="PATH",
        help="recorded inputs and outputs: a folder, .npz, input_0.pb and output_0.pb, or Polygraphy's .json "
        "(default: the folders test_data_set_* beside a model); repeatable",
    )  # fmt: skip
    parser.add_argument("--recorded", action="store_true", help="run recorded data alone, and draw nothing")
    parser.add_argument(
        "--output", action="append", default=[], metavar="FORMAT[=FILE]",
        help="json or junit: printed, with all other text on standard error; json=FILE and junit=FILE write a file; "
        "repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=option_types.count(1), metavar="N", help="models at a time (default: the cores, at most 4)"
    )
    add_store(parser, "models")


def run(given: argparse.Namespace) -> int:
    """Return 0; 1 where something is wrong; 2 where a file cannot be checked; 5 where nothing could be verified; 130
    after Ctrl-C.

    Raises UserError for options that cannot be used, and where the only file cannot be checked.
    """
    outputs = outputs_of(given.output, _FORMATS)
    stream = sys.stderr if None in outputs.values() else None

    def say(line: object) -> None:
        tell(line, stream)

    for line in describe_left_out(given.runtime):
        say(line)
    other = _other(given)
    if other is not None:
        return _report([_check_alone(model_of_file(given.paths[0]), given, other, say)], given, outputs, say)
    from conformance.process.disk.model_files import distinct_names, find_models

    found = find_models(given.paths)
    if found.others:
        say(f"{found.others:,} other file{'s are' if found.others > 1 else ' is'} no model{'s' * (found.others > 1)}")
    if len(found.models) == 1 and not found.others:
        return _report([_check_alone(model_of_file(found.models[0]), given, None, say)], given, outputs, say)
    from conformance.cells.check_models import Model

    models = [Model(*each) for each in zip(found.models, distinct_names(found.models), strict=True)]
    return _report(_check_many(models, given, say), given, outputs, say, found.others, many=True)


def _other(given: argparse.Namespace) -> Path | None:
    """Return the file that has to compute the same as the first, where two files are given."""
    several = given.each or len(given.paths) != 2 or any(path.is_dir() for path in given.paths)
    second = given.paths[-1]
    return None if several or not all(path.exists() for path in given.paths) else second


# ---- running -------------------------------------------------------------------------------------------------


def model_of_file(file: Path) -> Model:
    """Return a file with the name of its case."""
    from conformance.cells.check_models import Model
    from conformance.process.disk.model_files import distinct_names

    return Model(file, *distinct_names([file]))


def _check_alone(model: Model, given: argparse.Namespace, other: Path | None, say: Say) -> CheckedModel:
    """Check one model, and print each verdict as it comes. Raises UserError for a file that cannot be checked."""
    from conformance.results.records import known, text

    reasons: set[str | None] = set()

    def see(record: Record, *, reported: bool) -> None:
        if reported:  # after the verdicts, once for each reason
            return
        say(text.verdict(record))
        if record.status == "skipped":
            say("  for the same reason" if record.reason in reasons else f"  {record.reason}")
            reasons.add(record.reason)
            for line in known.lines(record):
                say(f"  {line}")

    return _check_with(model, given, other, say, see, {})


def check_file(file: Path, name: str | None, keys: Mapping[str, Any], say: Say) -> tuple[CheckedModel, list[str]]:
    """Check a file as the command does with no option, but for ``keys`` of a case, which go before; also return the
    lines about what is right and what does not count. Raises UserError for a file that cannot be checked."""
    parser = argparse.ArgumentParser()
    arguments(parser)
    precision = ["--precision", "fp32"] if "precisions" in keys else []  # what is asked for counts, int8 too
    given = parser.parse_args([*precision, "--", str(file)])
    model = model_of_file(file)
    model = dataclasses.replace(model, name=name or model.name)
    checked = _check_with(model, given, None, say, lambda record, reported: None, keys)
    if checked.refused:
        raise UserError(checked.refused)
    return checked, [*describe_verdict(checked, checked.counted()), *describe_uncounted(checked)]


def _check_with(
    model: Model, given: argparse.Namespace, other: Path | None, say: Say, see: See, keys: Mapping[str, Any]
) -> CheckedModel:  # fmt: skip
    from conformance.process.worker.warm import new_file_worker

    said = {**describe_case(given, model.file, other, say), **recorded_key(given, model.file, say), **keys}
    with new_file_worker() as worker:
        runner = _runner(given, worker)

        def telling(cell: Cell) -> ProgressLines:
            return ProgressLines(cell.id, given.budget)

        case = functools.partial(case_with_sizes, said=said, worker=worker, say=say)
        return _run(model, case, runner, _reported_only(given, said), see, telling)


def _run(
    model: Model, case: Callable[[CheckedModel], Case], runner: Runner, reported: Callable[[Record], bool],
    see: See = lambda record, reported: None, telling: Callable[[Cell], OnWait] | None = None,
) -> CheckedModel:  # fmt: skip
    """Run a model, with the failures that count for nothing in ``uncounted``."""
    from conformance.cells.check_models import run_model

    checked = run_model(model, case, runner, lambda record: see(record, reported=reported(record)), telling)
    foreign = [record for record in checked.records if record.error in TO_CORRECT]
    if foreign:  # the data or an option has to be corrected, and no runtime is wrong
        checked.refused = f"{model.file}: {foreign[0].reason}"
    checked.uncounted = frozenset(one.id for one in checked.records if one in foreign or reported(one))
    return checked


def _check_many(models: Sequence[Model], given: argparse.Namespace, say: Say) -> list[CheckedModel]:
    """Check the models in several workers, and print a line for each as it ends."""
    from conformance.cells.check_models import CheckedModel, check_models, refused_alike

    described: dict[Path, dict[str, Any]] = {}
    refused: list[CheckedModel] = []
    for model in models:
        try:
            said = describe_case(given, model.file, None, lambda line: None)
            described[model.file] = said | recorded_key(given, model.file, say)
        except UserError as error:
            refused.append(CheckedModel(model, refused=str(error)))
    for line in refused_alike(refused):
        say(line)

    def check(worker: Worker, runner: Runner, model: Model) -> CheckedModel:
        said = described[model.file]

        def case(checked: CheckedModel) -> Case:
            return case_with_sizes(checked, said, worker, lambda line: None)

        return _run(model, case, runner, _reported_only(given, said))

    left = [model for model in models if model.file in described]
    jobs = min(given.jobs or min(len(os.sched_getaffinity(0)), _MOST_JOBS), max(len(left), 1))
    checked = {one.model.name: one for one in refused}
    try:
        for one in check_models(left, jobs, lambda worker: _runner(given, worker), check, say):
            checked[one.model.name] = one
            for line in describe_model(one):
                say(line)
    except KeyboardInterrupt:
        rest = (model for model in models if model.name not in checked)
        checked |= {model.name: CheckedModel(model, unfinished=[model.name]) for model in rest}
    return [checked[model.name] for model in models]


_MOST_JOBS = 4


def _runner(given: argparse.Namespace, worker: Worker) -> Runner:
    from conformance.case.plan.settings import Settings
    from conformance.cells.runner import Runner

    settings = Settings(store=given.store / "models", examples=given.examples, budget=given.budget)
    return Runner(settings, TIMEOUT, worker)


def case_with_sizes(checked: CheckedModel, said: dict[str, Any], worker: Worker, say: Say) -> Case:
    """Return the case of a model, with sizes that work for its open dims; ``checked`` gets those of all."""
    from conformance.cells.file_sizes import working_sizes

    case = case_of(checked.model, said)
    second = said["export"].get("onnx", {}).get("file", checked.file)
    checked.floats = floats_left_in(checked.file.parent / second)
    if any(name not in said["dims"] for name in case.says.dims):
        telling = ProgressLines(f"{checked.model.name}: trying sizes")
        found, checked.narrow = ask(worker, working_sizes, case, tuple(said["dims"]), on_wait=telling)
        said = {**said, "dims": {**found, **said["dims"]}}
        case = case_of(checked.model, said)
    checked.dims = {name: said["dims"][name] for name in case.says.dims}
    if checked.dims:
        say(f"sizes: {', '.join(_sizes(checked.dims))}")
    return case


def _sizes(dims: dict[str, str]) -> Iterator[str]:
    """Yield each dim with its sizes; of a model with many dims those of one range together."""
    if len(dims) <= _MOST_DIMS:
        yield from (f"{name} {sizes}" for name, sizes in dims.items())
        return
    alike: dict[str, list[str]] = {}
    for name, sizes in dims.items():
        alike.setdefault(sizes, []).append(name)
    for sizes, names in alike.items():
        yield f"{names[0]} {sizes}" if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more {sizes}"


_MOST_DIMS = 16


def _reported_only(given: argparse.Namespace, said: Mapping[str, Any]) -> Callable[[Record], bool]:
    """Return what says of a record whether its failure is reported and counts for nothing: nobody has asked for a
    conversion to int8, of which it is not known what it may cost, nor whether TensorRT for RTX takes the file, which
    says nothing against it."""
    from conformance.results.records.words import base_of
    from conformance.runtimes import registry

    def reported(record: Record) -> bool:
        by_suite = not said["precisions"].get(record.precision, {}).get("file")
        of_int8 = given.precision is None and base_of(record.precision) == "int8" and by_suite
        of_rtx = given.runtime is None and record.runtime == registry.RTX
        return record.status == "failed" and (of_int8 or of_rtx)

    return reported


# ---- what is printed -----------------------------------------------------------------------------------------


def _report(
    checked: Sequence[CheckedModel], given: argparse.Namespace, outputs: dict[str, Path | None], say: Say,
    others: int = 0, *, many: bool = False,
) -> int:  # fmt: skip
    """Print the findings and the result, write the reports that are asked for, and return the exit code."""
    counted = [record for one in checked for record in one.counted()]
    code = _exit_code(checked)
    if many:
        last = [*blocks(counted), *describe_totals(checked)]
    else:
        (one,) = checked
        last = [
            *describe_uncounted(one),
            *blocks(counted),
            *describe_summary(one.records, one.floats),
            *describe_verdict(one, counted),
            *describe_narrow(one),
        ]
    for line in (*last, *describe_unfinished(checked)):
        say(line)
    if outputs:
        from conformance.front.commands.check_report import as_json, as_junit, write

        data = {"json": as_json, "junit": as_junit}
        for name, file in outputs.items():
            write(file, data[name](checked, others, code))
    return code


def _exit_code(checked: Sequence[CheckedModel]) -> int:
    if any(one.unfinished for one in checked):
        return 130
    if any(one.is_wrong() for one in checked):
        return 1
    if any(one.refused for one in checked):
        return 2
    return 0 if any(one.verified() for one in checked) else 5
