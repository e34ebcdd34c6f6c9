"""How much of the module a cell's comparison would notice if it were wrong, and whether that is enough for its case.

The question is asked once for a case and what decides on its outputs, on draws of the case's own, whichever cell
comes first: what is seen depends on PyTorch and the comparison alone.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from conformance.arrays import Array, Inputs
from conformance.case.declaration import Case
from conformance.checks.hidden import compare_hidden, hidden, refuse_wrong
from conformance.checks.models import CellRun
from conformance.checks.prepared import Prepared
from conformance.checks.verify import Verifier
from conformance.compare.tolerance import largest_of
from conformance.coverage.cost import runs_within
from conformance.coverage.disturb import TENTHS
from conformance.coverage.kept import kept, key_of
from conformance.coverage.measure import Covered, Trial, Unknown, Zeroed, measure, spread
from conformance.depends.files import needs
from conformance.depends.inventory import said
from conformance.draw.draw import Draw, regimes_of, seed_of
from conformance.draw.shapes import boundary_sizes
from conformance.errors import Stopped, display_path
from conformance.export.reference import Reference
from conformance.plan.catalogue import plan
from conformance.plan.cell import Cell
from conformance.plan.expected import declared, expectations
from conformance.plan.settings import DRAWN_SHAPES
from conformance.records.settle import MARGIN
from conformance.runtimes import registry
from conformance.verdict.example import Answers, Example

ENOUGH = 0.9
"""The share of the calls that have to be seen."""
PLENTY = 0.95
"""The share from which ``hollow:`` is not needed. Between both a case may say it or not, since other versions of
PyTorch compute the same by a few calls more or less."""
DRAWS, PLAIN = 12, 3
"""On how many draws a call that is not seen is tried, and on how many of them after the first with plain values."""
PLACES = 100
"""Of how many places calls that are not seen are told."""
CERTAIN = 1e-3
"""An error of this share of an output's largest value is more than any rounding that a comparison excuses. For
smaller ones it is asked how the inputs are conditioned, which takes longer than many runs."""


def note_coverage(run: CellRun, verify: Verifier) -> None:
    """Notes in the record what the cell's comparison shows of the module.

    Raises Stopped where a submodule that no output shows is wrong in the exported model (WrongInside), and in the
    cell that answers for its case: Hollow where less than ``ENOUGH`` is seen without the case saying why, NotHollow
    where it says so and more than ``PLENTY`` is.
    """
    start = time.perf_counter()
    with run.stages("compare", "harness"):
        known = dict(_known(run, verify))
        paths = known.pop("hidden", ())
        states = compare_hidden(run, paths) if paths and not run.cell.converted else {}
    if states:
        known["hidden"] = [{"module": path, **state.as_dict()} for path, state in states.items()]
    run.record.coverage = known
    spent = time.perf_counter() - start
    run.record.seconds["compare"] -= spent  # which is told apart
    run.record.seconds["coverage"] = run.record.seconds.get("coverage", 0.0) + spent
    refuse_wrong(run, states)
    if run.cell.converted or not answers(run.cell):
        return
    says, seen, of = run.cell.case.says, known["seen"], known["of"]
    if says.hollow is None and says.vacuous is None and seen < ENOUGH * of:
        text = (
            f"{seen} of {of} operator calls show in what the module returns: others may be wrong, and nothing fails"
        )
        stop = Stopped("compare", "Hollow", text, "case")
        stop.fields = {"hints": ["hollow"], "draw": None, "worst": None}
        raise stop
    if says.hollow is not None and not says.vary and "unknown" not in known and seen >= PLENTY * of:
        text = f"{seen} of {of} operator calls show in what the module returns; take hollow: out"
        stop = Stopped("compare", "NotHollow", text, "case")
        stop.fields = {"draw": None, "worst": None}
        raise stop


def answers(cell: Cell) -> bool:
    """Whether this is the one cell of its case that fails where too little of the module is seen: the first accuracy
    cell in fp32 of which no failure is declared, of ONNX Runtime if it runs the case."""
    cells = [other for other in plan(cell.case) if other.check == "accuracy" and not other.converted]
    sound = [other for other in cells if not expectations(other)]

    def order(other: Cell) -> tuple[bool, ...]:
        runtime = str(other.runtime)
        builds = registry.named(runtime).builds
        return bool(declared(other)), builds, runtime != "onnxruntime", runtime == "onnx-reference"

    return bool(sound) and min(sound, key=order).id == cell.id


def _known(run: CellRun, verify: Verifier) -> dict[str, Any]:
    """The record's field, from this process, an earlier run, or measured now."""
    prepared, judge = run.prepared, verify.judge
    assert judge is not None
    case = prepared.case
    decides = judge.as_dict()
    name = repr(decides)
    if name not in prepared.coverage:
        says = {**said(case, "export"), "examples": case.says.examples.model_dump()}
        parts = (case.name, says, sorted(case.arguments.items(), key=str), prepared.reference.weights, decides)
        key = key_of(parts, needs(case, "export", "none").digest())
        prepared.coverage[name] = kept(run.settings.store.parent / "coverage", key, lambda: _measured(run, verify))
    return prepared.coverage[name]


def _measured(run: CellRun, verify: Verifier) -> dict[str, Any]:
    try:
        own = _copied(run.reference)
        covered = measure(own.module, _trials(run, verify, own), runs_within, () if run.cell.converted else TENTHS)
    except Unknown as unknown:
        why = {"why": str(unknown)} if str(unknown) else {}
        return {"seen": 0, "of": 0, "blind": [], "unknown": unknown.name, **why}
    return told(covered, run.cell.case)


def _copied(reference: Reference) -> Reference:
    try:
        return reference.copied()
    except Exception as error:
        raise Unknown("raises", f"{type(error).__name__}: {error}") from error


def told(covered: Covered, case: Case) -> dict[str, Any]:
    """The record's field: how many calls are seen of how many, and the places of those that are not, each with how
    many calls it has; ``calls`` and ``places`` where these are not all."""
    places = Counter((site.module, _place(site.at, case), site.op) for site in covered.blind)
    blind = [
        {"module": module, "at": at, "op": op, "count": count}
        for (module, at, op), count in itertools.islice(places.items(), PLACES)
    ]
    known: dict[str, Any] = {
        "seen": len(covered.seen), "of": len(covered.seen) + len(covered.blind), "blind": blind
    }  # fmt: skip
    if covered.calls > known["of"]:
        known["calls"] = covered.calls
    if len(places) > PLACES:
        known["places"] = len(places)
    if paths := hidden(covered):
        known["hidden"] = paths
    return known


def _place(at: str | None, case: Case) -> str | None:
    """Where a call stands; of an expression in a case file, where the case does."""
    return f"{display_path(case.file)}:{case.line}" if at is not None and at.startswith("<forward of ") else at


def _trials(run: CellRun, verify: Verifier, own: Reference) -> Iterator[Trial]:
    """The draws of the case, each with ``own`` run on it; draws on which PyTorch raises are left out."""
    apart = frozenset(number for number, output in enumerate(verify.outputs()) if output.vacuous)
    # of a converted model it is only told, and answers for nothing
    for draw in itertools.islice(draws(run.prepared), 1 + PLAIN if run.cell.converted else DRAWS):
        try:
            inputs = verify.inputs(draw)
            example = Example(draw, partial(_self, inputs), partial(_answers, verify), verify.conditioning)
            wanted = [array.copy() for array in example.wanted]
        except Stopped:
            continue
        zeroed = run.prepared.zeroed.setdefault(f"{draw.as_dict()} {sorted(apart)}", Zeroed())
        yield Trial(partial(_run, own, inputs), wanted, partial(_notices, verify, example), apart, zeroed)


def _self(inputs: Inputs) -> Inputs:
    return inputs


def _answers(verify: Verifier, inputs: Inputs) -> Answers:
    """What PyTorch gives, in place of what a converted model means too: it is asked whether a wrong module shows."""
    reference = verify.reference
    reference.restore()
    wanted = reference(inputs)
    return wanted, (lambda: wanted) if verify.cell.converted else partial(reference.oracle, inputs)


def _run(own: Reference, inputs: Inputs) -> list[Array]:
    own.restore()
    return own(inputs)


def _notices(verify: Verifier, example: Example, got: list[Array]) -> bool:
    """Whether the cell would fail with these outputs; on plain values by ``MARGIN``, and so on others too."""
    comparison = verify.compare(got, example.right())
    worst = comparison.worst
    if comparison.error == "WrongValue" and worst is not None and not verify.cell.converted:
        if worst.error >= CERTAIN * largest_of(example.wanted[worst.output]):
            return True
        if example.draw.regime == "plain":  # hardly ever badly conditioned
            return worst.ratio >= MARGIN
        if example.conditioning is not None:
            comparison = verify.compare(got, example.right(conditioned=True))
    return comparison.verdict == "failed"


def draws(prepared: Prepared) -> Iterator[Draw]:
    """A plain draw at the traced sizes, then draws of the sizes and regimes of an accuracy cell. They depend on the
    case alone, not on ``--examples`` or ``--random``."""
    case, traced = prepared.case, prepared.trace()
    says = case.says.examples
    static = {name for target in case.says.export.exporters.values() for name in target.static}
    dims = case.dims.fixing({name: traced[name] for name in static})
    count = DRAWN_SHAPES if says.shapes is None else says.shapes
    shapes = boundary_sizes(dims, traced)[: says.boundary]
    shapes = [*shapes, *(sizes for sizes, _ in prepared.drawn_shapes(dims, count, ()))]
    yield Draw(traced, "plain", seed_of(case.name, "coverage"))
    of_shapes = [
        Draw(sizes, regime, seed_of(case.name, "coverage", k, *sizes.items()))
        for k, sizes in enumerate(shapes)
        for regime in regimes_of("accuracy", says.values, k)
    ]
    others = [draw for draw in of_shapes if draw.regime != "plain"]
    yield from itertools.islice((draw for draw in of_shapes if draw.regime == "plain"), PLAIN)
    yield from spread(others, DRAWS - PLAIN - 1)
