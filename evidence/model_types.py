"""Make small cases of kinds of networks by their names alone, and count what the suite says of each.

The types are chosen by rule: evenly from the base models that transformers lists, and the first network of families
that are chosen evenly from the registry of timm.
Each is made small with random weights (``conformance new NAME --from MODULE --tiny``), exported by dynamo at one
opset, and run by ONNX Runtime in fp32. Results are kept at once, so that the next call goes on where this one ended.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import HEAD, ROOT, Row, process_ended
from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.extras.draft.case_text import as_text
from conformance.extras.draft.drafting import Draft, Request
from conformance.extras.draft.tiny import draft_tiny, numbers_of, weights
from conformance.front.commands import ask
from conformance.process.errors import UserError, works
from conformance.process.worker.isolation import Worker
from conformance.process.worker.warm import new_worker
from conformance.results.records.record import Record

PAGE = ROOT / "docs" / "evidence" / "model-types.md"
RESULTS = ROOT / ".conformance" / "model-types.jsonl"
EVERY = {"transformers": 15, "timm": 8}
"""One of so many types, or families, is tried, by library."""
MOST = {"transformers": 150, "timm": 12}
TARGET = 0.85
CELL = 180.0
"""Seconds for a cell."""


@dataclass(frozen=True)
class Result:
    """Hold the outcome of one type."""

    module: str
    outcome: str
    """``green``, ``red: FAULT``, ``skipped``, or ``no case``."""
    why: str
    made_with: str
    versions: str

    @property
    def counts(self) -> bool:
        """Return whether it says something of an export: green, or red by somebody else's fault."""
        return self.outcome == "green" or self.outcome in (
            "red: exporter",
            "red: runtime",
            "red: pytorch",
            "red: converter",
        )


def modules(library: str, quick: bool = False) -> list[str]:
    """Return the names of the types of a library, as ``--from`` takes them."""
    known = _of_transformers() if library == "transformers" else _of_timm()
    chosen = known[:: EVERY[library]][: MOST[library]]
    return chosen[::20] if quick else chosen


def _of_transformers() -> list[str]:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    listed = sorted(
        {name for one in MODEL_MAPPING_NAMES.values() for name in ([one] if isinstance(one, str) else one)}
    )
    return [f"transformers.{name}" for name in listed if hasattr(transformers, name)]


def _of_timm() -> list[str]:
    """Return the first network of each family, which is a module of Python."""
    import timm

    firsts = (timm.list_models(module=family)[:1] for family in sorted(timm.list_modules()))
    return [f"timm.models.{name}" for first in firsts for name in first]


def versions(library: str) -> str:
    """Return the releases that a result holds for."""
    import torch

    return f"torch {torch.__version__}, {library} {importlib.import_module(library).__version__}"


NOT_BUILT = "not built by its library"
"""Of a class that needs another package, or arguments that it has no default for: it is counted apart."""


def study(library: str, quick: bool) -> list[Result]:
    """Return the result of each type of a library; those that are kept of these versions are not tried again."""
    now, kept = versions(library), _kept()
    found: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="conformance-types-") as name, new_worker(dynamo=True) as worker:
        for number, module in enumerate(modules(library, quick)):
            if (module, now) not in kept:
                result = _tried(worker, module, Path(name) / str(number), now)
                worker.replace()
                RESULTS.parent.mkdir(parents=True, exist_ok=True)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(dataclasses.asdict(result)) + "\n")
                kept[module, now] = result
                print(f"{number + 1}: {module}: {result.outcome}: {result.why[:120]}", flush=True)
            found.append(kept[module, now])
    return found


def _kept() -> dict[tuple[str, str], Result]:
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return {(one.module, one.versions): one for one in (Result(**json.loads(line)) for line in lines)}


def _is_built(progress: object, request: Request) -> bool:
    """Return whether the library makes such a network of what it takes by default."""
    return works(lambda: weights(dataclasses.replace(request, given=numbers_of(request)[0]({}))))


def _tried(worker: Worker, module: str, folder: Path, now: str) -> Result:
    folder.mkdir(parents=True)
    request = Request(folder, module, {}, {})
    try:
        request, draft = ask(worker, draft_tiny, request)
    except UserError as refused:
        built = worker.call(_is_built, request, timeout=CELL)
        return Result(module, "no case" if built is True else NOT_BUILT, str(refused), "", now)
    records = _records(worker, request, draft, folder / "asleep", awake=False)
    if any(record.error == "Hollow" for record in records):
        records = _records(worker, request, draft, folder / "awake", awake=True)
    made_with = json.dumps(dict(request.given))
    for status in ("failed", "skipped"):
        for record in records:
            if record.status == status:
                outcome = "skipped" if status == "skipped" else f"red: {record.fault}"
                return Result(module, outcome, f"{record.stage}: {record.error}: {record.reason}", made_with, now)
    return Result(module, "green", "", made_with, now)


def _records(worker: Worker, request: Request, draft: Draft, folder: Path, *, awake: bool) -> list[Record]:
    """Return the records of the case; ``awake`` as ``conformance new`` has weights where parts do not show."""
    folder.mkdir()
    case = folder / "one.yaml"
    case.write_text(as_text("one", request, draft, {"torchscript": "one is enough here"}, awake), encoding="utf-8")
    run = Runner(Settings(store=folder / "store", examples=4, smallest=False), CELL, worker)
    cells = [
        cell for cell in plan(load(case)[0])
        if cell.check in ("export", "accuracy") and cell.runtime in (None, "onnxruntime")
    ]  # fmt: skip
    return list(run.each(cells))


def rows(quick: bool) -> Iterator[Row]:
    for library in EVERY:
        yield from rows_of(library, study(library, quick))


def rows_of(library: str, found: Sequence[Result]) -> Iterator[Row]:
    """Yield how the types of a library ended."""
    built = [one for one in found if one.outcome != NOT_BUILT]
    count = sum(one.counts for one in built)
    yield Row(
        f"types of {library} that are green, or red by the fault of another than the case and the harness",
        f"{count / len(built):.1%}", f"{count} of {len(built)} that their library builds",
        target=f"at least {TARGET:.0%}", met=count / len(built) >= TARGET, repeats=len(found),
    )  # fmt: skip
    for outcome, count in sorted(Counter(one.outcome for one in found).items()):
        yield Row(outcome, str(count))


TEXT = """# Networks by their name

Made by `tox run -e dev -- python -m evidence model_types`.

Each is made small as `conformance new NAME --from MODULE --tiny` does it, with random weights and without a network,
exported by dynamo at one opset, and run by ONNX Runtime in fp32. Types that their library does not build of what it
takes by default, since they need another package or have no such default, are counted apart.

{sections}

{where}
"""
CHOSEN = {
    "transformers": "One of {every} base models that transformers lists, by alphabet: {count}.",
    "timm": "The first network, by alphabet, of one of {every} families of timm's registry, up to {count}.",
}


def write(where: str) -> None:
    """Writes ``docs/evidence/model-types.md``; ``where`` says on what host and with which versions."""
    sections = "\n\n".join(section(library, study(library, False)) for library in EVERY)
    PAGE.write_text(TEXT.format(sections=sections, where=where), encoding="utf-8")


def section(library: str, found: Sequence[Result]) -> str:
    """Return the part of the page about a library."""
    return "\n".join([
        f"## {library}", "", CHOSEN[library].format(every=EVERY[library], count=len(found)), "", HEAD,
        *(row.line() for row in rows_of(library, found)), "", "| not green | outcome | why |", "|---|---|---|",
        *_lines(found),
    ])  # fmt: skip


def _lines(found: Sequence[Result]) -> Iterator[str]:
    ended = Counter(one.outcome for one in found if process_ended(one.why))
    for outcome, count in sorted(ended.items()):
        yield f"| {count}, not named | {outcome} | its process ended, or ran out of {CELL:.0f} s |"
    for one in sorted(found, key=lambda one: (one.outcome, one.module)):
        if one.outcome != "green" and not process_ended(one.why):
            why = " ".join(one.why.replace("|", "\\|").replace("`", "'").split())
            yield f"| {one.module} | {one.outcome} | {why[:160]} |"
