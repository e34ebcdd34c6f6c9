"""The shipped catalogue by stage, beside the bare work: each model exported, converted and loaded once, and PyTorch
and the runtime once on each example, with nothing looked at.

The suite runs with two workers and a new store, without budgets of time, then once more with that store. The bare
work runs twice at the same time, each time over every other case, so that both sides have two processes on the same
host. The seconds of each case are written beside the cases (``case.plan.order``), for whoever runs them for the first
time. It leaves out cells that were skipped or ended their process. It exports with torch.onnx as the harness finds it
(``CONFORMANCE_DYNAMO_CACHE=0``), converts with ONNX Runtime's own calibrators, and draws its values with the harness.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Row
from conformance.case.files.python import Folder
from conformance.case.plan.catalogue import Selection, read_suite
from conformance.case.plan.cell import Cell
from conformance.case.plan.order import FILE
from conformance.results.baseline.shards import repeated, shard
from conformance.results.records.environment import environment
from conformance.results.records.record import Record
from conformance.results.records.spent import own_seconds
from conformance.results.records.words import base_of

SHIPPED = ROOT / "cases"
QUICK = SHIPPED / "layer_norm"
PROCESSES = 2
SHARDS = (4, 8, 16)
STAGES = {
    "declare": "building modules, reading calibration data",
    "export": "export",
    "convert": "conversion to fp16 and int8",
    "load": "opening sessions",
    "reference": "PyTorch",
    "run": "runtimes",
    "check": "checking models",
    "compare": "comparing",
}
"""The stages of a record's ``seconds``."""
APART = {"coverage": "how much of each module shows", "locate": "where failures begin"}
"""What a cell does beyond the bare work, told apart from it."""
DRAW = "draw"
"""What the bare work calls the making of inputs, which the harness counts nowhere apart."""


def rows(quick: bool) -> Iterator[Row]:
    cases = QUICK if quick else SHIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = _suite(folder, cases, "first")
        second = _suite(folder, cases, "second")
        bare, whole = _bare(folder, cases)
    if not quick:
        host = environment([])
        measured = f"{date.today()}, {host['cpu']['name']}, {host['cores']} cores, {PROCESSES} workers"
        write_usual(SHIPPED, map(Record.from_dict, first[1]), measured)
    spent, again = _by_stage(first[1]), _by_stage(second[1])
    yield Row(
        f"the whole catalogue, {len(first[1]):,} cells, {PROCESSES} workers", f"{first[0]:.0f} s",
        f"the bare work, {whole:.0f} s", f"{first[0] / whole:.2f} ×", "at most 1.2 ×", first[0] <= 1.2 * whole,
    )  # fmt: skip
    alike = first[0] - sum(spent[stage] for stage in APART) / PROCESSES
    yield Row(
        f"the same without {' and '.join(APART.values())}", f"{alike:.0f} s", f"the bare work, {whole:.0f} s",
        f"{alike / whole:.2f} ×",
    )  # fmt: skip
    yield Row(
        "the same from the store", f"{second[0]:.0f} s", f"the first, {first[0]:.0f} s",
        f"{second[0] / first[0]:.2f} ×", "at most 0.25 ×", second[0] <= 0.25 * first[0],
    )  # fmt: skip
    limits = {} if quick else {"convert": 80, "declare": 40}
    for stage, what in {**STAGES, **APART}.items():
        beside = (f"bare, {bare[stage]:.0f} s", f"{spent[stage] / bare[stage]:.2f} ×") if bare[stage] else ("", "")
        limit = limits.get(stage)
        yield Row(
            f"in all processes: {what}", f"{spent[stage]:.0f} s; from the store {again[stage]:.0f} s", *beside,
            f"at most {limit} s" if limit else "", spent[stage] <= limit if limit else None,
        )  # fmt: skip
    rest = PROCESSES * first[0] - sum(spent.values())
    yield Row(
        "the rest: starting, reading cases, drawing, explaining failures, waiting for the last", f"{rest:.0f} s",
        f"bare, drawing {bare[DRAW]:.0f} s",
    )  # fmt: skip
    for count in SHARDS:
        yield _shards(count, first[1])


def write_usual(folder: Path, records: Iterable[Record], measured: str) -> None:
    """Write the file of a folder, by the records of a run of all of its cells; ``measured`` says where and when."""
    spent: dict[str, float] = {}
    for record in records:
        spent[record.case] = spent.get(record.case, 0.0) + own_seconds(record)
    seconds = {name: round(value, 1) for name, value in sorted(spent.items())}
    text = json.dumps({"measured": measured, "seconds": seconds}, indent=1)
    (folder / FILE).write_text(f"{text}\n", encoding="utf-8")


def _shards(count: int, records: Sequence[Mapping[str, Any]]) -> Row:
    """How evenly ``--shard-durations`` divides the seconds of all stages of a run, by that run itself. A shard takes
    longer by what it exports and converts that another shard does too."""
    of_cells = map(Record.from_dict, records)
    seconds = {record.id: sum(map(float, record.seconds.values())) for record in of_cells}
    shards = [shard(seconds, index, count, seconds) for index in range(1, count + 1)]
    loads = [sum(seconds[name] for name in cells) + repeated(cells, seconds) for cells in shards]
    whole = sum(seconds.values())
    share = whole / (count * max(loads))
    return Row(
        f"{count} shards by its durations", f"the longest {max(loads):.0f} s",
        f"a {count}th of all, {whole / count:.0f} s", f"{share:.0%} of the time of all is spent working",
        "at least 90%", share >= 0.9,
    )  # fmt: skip


def _suite(folder: Path, cases: Path, report: str) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of a run with the store of the folder, and its records."""
    command = [sys.executable, "-m", "pytest", "--pyargs", "conformance", "-q", "--cell-workers", str(PROCESSES)]
    command += ["-m", "not latency"]
    command += ["--cases", str(cases), "--report", str(folder / report), "--store", str(folder / "store")]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode not in (0, 1):  # on another host some of the shipped cells may be red
        raise RuntimeError(f"{command} gave {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = (folder / report / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return seconds, [record for record in map(json.loads, lines) if "seconds" in record]


def _by_stage(records: Iterable[Mapping[str, Any]]) -> Counter[str]:
    spent: Counter[str] = Counter()
    for record in records:
        spent.update(record["seconds"])
    return spent


def _bare(folder: Path, cases: Path) -> tuple[Counter[str], float]:
    """Seconds by stage in all processes, and by the clock."""
    environment = {**os.environ, "CONFORMANCE_DYNAMO_CACHE": "0", "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.catalogue", str(cases), str(folder / "first"), str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=SHIPPED.parent,
            env=environment,
        )
        for number in range(PROCESSES)
    ]
    outputs = [process.communicate()[0] for process in running]
    whole = time.perf_counter() - start
    if any(process.returncode for process in running):
        raise RuntimeError(f"the bare work ended with {[process.returncode for process in running]}")
    return sum((Counter(json.loads(text.splitlines()[-1])) for text in outputs), Counter()), whole


# ---- the bare work, in a process of its own ------------------------------------------------------------------


class Bare:
    """Does the work of cells, and counts its seconds by stage."""

    def __init__(self, records: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
        self.spent: Counter[str] = Counter()
        self._records, self._folder = records, folder

    @contextlib.contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent[stage] += time.perf_counter() - start

    def case(self, cells: Sequence[Cell]) -> None:
        """All cells of a case."""
        from conformance.case.draw.draw import Maker
        from conformance.models.prepared import Prepared, reference_of

        case = cells[0].case
        with Folder.of(case.folder).active() as folder:
            with self._timed("declare"):
                prepared = Prepared(case, reference_of(case, folder), Maker(case, folder.resolve))
            models: dict[tuple[str, int], list[Cell]] = defaultdict(list)
            for cell in cells:
                models[cell.exporter, cell.opset].append(cell)
            for sharing in models.values():
                # what a case declares to fail, fails here too, and took its time
                with contextlib.suppress(Exception):
                    self._model(prepared, sharing)

    def _model(self, prepared: Any, cells: Sequence[Cell]) -> None:
        from conformance.models.exporters.exporters import export

        cell = cells[0]
        with self._timed("export"):
            exported = export(prepared.reference, cell.exporter, cell.opset, prepared.inputs(), prepared.trace())
        file = self._folder / "model.onnx"
        file.write_bytes(exported.data.data)
        for precision in dict.fromkeys(cell.precision for cell in cells):
            with contextlib.suppress(Exception):
                model = file if precision == "fp32" else self._converted(prepared, cell, precision, file)
                for cell in cells:
                    if cell.precision == precision and cell.check in ("accuracy", "specials", "fidelity"):
                        self._examples(prepared, cell, model)

    def _converted(self, prepared: Any, cell: Cell, precision: str, file: Path) -> Path:
        """As the pages of ONNX Runtime tell to convert."""
        import onnx
        from onnxruntime import quantization
        from onnxruntime.transformers.float16 import convert_float_to_float16

        settings, target = cell.case.says.precisions[precision], cell.case.says.export.exporters[cell.exporter]
        with self._timed("declare"):
            feeds = prepared.feeds(settings.calibration, target.static)
        result = self._folder / "converted.onnx"
        with self._timed("convert"):
            if base_of(precision) == "fp16":
                onnx.save(convert_float_to_float16(onnx.load(file), keep_io_types=True), result)
            else:
                methods = quantization.CalibrationMethod
                quantization.quantize_static(
                    file, result, _Reader(feeds.batches), per_channel=True,
                    calibrate_method={"minmax": methods.MinMax, "entropy": methods.Entropy,
                                      "percentile": methods.Percentile}[settings.calibration.method],
                )  # fmt: skip
        return result

    def _examples(self, prepared: Any, cell: Cell, model: Path) -> None:
        from conformance.case.plan.settings import Settings
        from conformance.judge.draws import Draws
        from conformance.runtimes import opener

        record = self._records[cell.id]
        reference, dims = prepared.reference, cell.case.dims
        static = cell.case.says.export.exporters[cell.exporter].static
        dims = dims.fixing({name: prepared.trace()[name] for name in static})
        with contextlib.ExitStack() as stack:
            libraries = [str(cell.case.folder / name) for name in cell.case.says.libraries]
            with self._timed("load"):
                session = stack.enter_context(opener(cell.runtime or "onnxruntime")(model, libraries))
            asked = (
                record["examples"] + record["ill_conditioned"] + record["nothing"] + (record["status"] != "passed")
            )
            draws = Draws(cell, Settings(self._folder), prepared, dims, prepared.trace())
            for draw in itertools.islice(draws, asked):
                with self._timed(DRAW):
                    inputs = prepared.maker(draw)
                with self._timed("reference"):
                    reference(inputs)
                with self._timed("run"):
                    session.run(inputs)


class _Reader:
    """ONNX Runtime's CalibrationDataReader."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)

    def get_next(self) -> Any:
        return next(self._batches, None)


def _done(record: Mapping[str, Any]) -> bool:
    """Whether a cell did its work: it was not skipped, and its process lived."""
    return record["status"] != "skipped" and record["signal"] is None and record["stage"] != "declare"


def main() -> None:
    """The bare work of every other case; the last line has the seconds by stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("number", type=int)
    given = parser.parse_args()
    from conformance.process.worker.warm import prepare_process

    warnings.simplefilter("ignore")
    prepare_process()
    lines = (given.report / "records.jsonl").read_text(encoding="utf-8").splitlines()
    records = {record["id"]: record for record in map(json.loads, lines) if "id" in record}
    cases: dict[tuple[Path, str], list[Cell]] = defaultdict(list)
    for cell in read_suite([given.cases], Selection())[0]:
        if cell.id in records and _done(records[cell.id]) and cell.check != "latency":
            cases[cell.case.file, cell.case.name].append(cell)
    with tempfile.TemporaryDirectory() as name:
        bare = Bare(records, Path(name))
        for number, cells in enumerate(cases.values()):
            if number % PROCESSES == given.number:
                with contextlib.suppress(Exception):
                    bare.case(cells)
    print(json.dumps(bare.spent), flush=True)


if __name__ == "__main__":
    main()
