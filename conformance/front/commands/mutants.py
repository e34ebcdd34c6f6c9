"""``conformance mutants``: whether cases would notice a wrong model."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.front.commands import add_option, add_store, selecting
from conformance.results.records.sanitize import tell

if TYPE_CHECKING:
    from conformance.case.plan.cell import Cell
    from conformance.extras.mutants.study import Fate, UnfitModel

SELECTION = ("exporter", "opset", "runtime")
EACH = 6


def arguments(parser: argparse.ArgumentParser) -> None:
    selecting(parser, SELECTION)
    add_option(parser, "--each", EACH, "mutants of each model, of its highest opset", type=_count, metavar="N")
    parser.add_argument(
        "--min-kill", type=_share, metavar="SHARE",
        help="exit with 1 where less than this share of the defects is killed, from 0 to 1",
    )  # fmt: skip
    add_store(parser)


def run(given: argparse.Namespace) -> int:
    """0, or 1 where fewer defects are killed than ``--min-kill``, or none could be planted."""
    import tempfile

    from conformance.extras.mutants.study import Fate, checks_of, fates, hasty_worker

    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, hasty_worker() as worker:
        for checks in checks_of(_cells(given)):
            found = []
            for fate in fates(worker, checks, given.store / "models", Path(name), given.each):
                found.append(fate)
                counts[fate.called if isinstance(fate, Fate) else "unfit"] += 1
            for line in _report_model(checks, found):
                tell(line)
    killed, defects = counts["killed"], counts["killed"] + counts["survived"]
    for line in _summary(counts):
        tell(line)
    if not defects:
        return 1
    return 1 if given.min_kill is not None and killed < given.min_kill * defects else 0


def _cells(given: argparse.Namespace) -> list[Cell]:
    """The selected cells; what is wrong with case files is told, and the others serve. Raises UserError for none."""
    from conformance.case.plan.catalogue import read_suite, refuse_without_torch, selection
    from conformance.case.plan.keyword_selection import Words
    from conformance.process.errors import UserError

    words, chosen = Words(given.words), selection({name: getattr(given, name) for name in SELECTION})
    cells, files = read_suite([path.absolute() for path in given.paths or [Path("cases")]], chosen)
    for error in filter(None, files.values()):
        tell(str(error), file=sys.stderr)
    cells = [cell for cell in cells if words.keeps(cell)]
    refuse_without_torch(cells)
    if not cells:
        raise UserError("no cell is selected; `pytest conformance --collect-only -q` lists those that there are")
    return cells


def _report_model(checks: Sequence[Cell], found: Sequence[Fate | UnfitModel]) -> Iterator[str]:
    """Tell the outcome of the mutants of a model, and what shows survivors."""
    from conformance.extras.mutants.study import UnfitModel
    from conformance.process.errors import display_path

    cell = checks[0]
    where = f"{display_path(cell.case.file)}:{cell.case.line}"
    if found and isinstance(found[0], UnfitModel):
        record = found[0].record
        yield f"{cell.label}: no mutants, as its cell has {record.status}: {record.error}"
        return
    fates = [fate for fate in found if not isinstance(fate, UnfitModel)]
    counts = Counter(fate.called for fate in fates)
    told = ", ".join(f"{counts[name]} {name}" for name in ("killed", "survived", "equal") if counts[name])
    yield f"{cell.label}: {told or 'no defect fits into this model'}"
    for fate in fates:
        if fate.called == "survived":
            yield f"  survived: {fate.made.node}: {fate.made.what} ({fate.made.kind}); {where}"
            yield from (f"    {line}" for line in _explain_survivor(fate))


def _explain_survivor(fate: Fate) -> Iterator[str]:
    judged = fate.judged
    assert judged is not None
    if judged.refused:
        yield f"{judged.refused} of {judged.asked} inputs that the cell did not draw show it: {judged.example}"
        yield from (f"{name} = {value}" for name, value in judged.inputs.items())
        if judged.beyond == judged.refused:
            yield "all of them lie beyond the values that the case declares, and PyTorch takes them: widen `values`"
        else:
            yield "draw more or other values: `examples`, wider `dims`, or the `values` of an input"
        return
    unclear = f"; for {judged.unclear} of them float32 is too rough to say" if judged.unclear else ""
    yield (
        f"on {judged.asked} inputs that the cell did not draw it is off by at most {judged.largest:.2g} of what the "
        f"tolerance allows{unclear}"
    )


def _summary(counts: Counter[str]) -> Iterator[str]:
    killed, defects = counts["killed"], counts["killed"] + counts["survived"]
    yield f"killed {killed} of {_many(defects, 'defect')}" + (f", {killed / defects:.1%}" if defects else "")
    if counts["equal"]:
        told = _many(counts["equal"], "change")
        yield f"not counted, as no input tells them from the sound model: {told}"
    if counts["unfit"]:
        yield f"not asked about, as their own cells do not pass: {_many(counts['unfit'], 'model')}"


def _many(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return share


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return count
