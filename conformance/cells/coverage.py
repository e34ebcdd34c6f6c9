"""Measure how much of the module a cell's comparison would notice if it were wrong, and whether that is enough.

The question is asked once for a case and what decides on its outputs, on draws of the case's own, whichever cell
comes first: what is seen depends on PyTorch and the comparison alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from conformance.case.draw.draw import Draw
from conformance.case.draw.example import Answers, Example
from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import declared, expectations
from conformance.compare.excuses import largest_of
from conformance.diagnose.hidden import compare_hidden, hidden, refuse_wrong
from conformance.judge.draws import DRAWS, PLAIN, draws, question_of
from conformance.judge.verify import Verifier
from conformance.models.cell_run import CellRun
from conformance.models.coverage.disturb import TENTHS
from conformance.models.coverage.measure_coverage import CoverageTrial, Covered, Unknown, Zeroed, measure, runs_within
from conformance.models.coverage.operator_calls import CallSite
from conformance.models.prepared import reference_of
from conformance.models.reference.out_of_range import has_ranges, inputs_beyond
from conformance.models.reference.reference import Reference
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, attempt, display_path
from conformance.results.records.settle import MARGIN
from conformance.runtimes import registry

ENOUGH = 0.9
"""The share of the calls that have to be seen."""
PLENTY = 0.95
"""The share from which ``hollow:`` is not needed. Between both a case may say it or not, since other versions of
PyTorch compute the same by a few calls more or less."""
FARTHER = (10, 100)
"""By how many times the width of a declared range values go beyond it, after once."""
PLACES = 100
"""Of how many places calls that are not seen are told."""
CERTAIN = 1e-3
"""An error of this share of an output's largest value is more than any rounding that a comparison excuses. For
smaller ones it is asked how the inputs are conditioned, which takes longer than many runs."""


def note_coverage(run: CellRun, verify: Verifier) -> None:
    """Note in the record what the cell's comparison shows of the module.

    Raises Stopped where a submodule that no output shows is wrong in the exported model (WrongInside), and in the
    cell that answers for its case: Hollow where less than ``ENOUGH`` is seen without the case saying why, NotHollow
    where it says so and more than ``PLENTY`` is, of all calls and not of a sample.
    """
    seconds = run.record.seconds
    before = seconds.get("compare", 0.0)
    with run.stages("compare", "harness"):
        known: Any = dict(_known(run, verify))
        paths = known.pop("hidden", ())
        states = compare_hidden(run, paths) if paths and not run.cell.converted else {}
    if states:
        known["hidden"] = [{"module": path, **state.as_dict()} for path, state in states.items()]
    run.record.coverage = known
    seconds["coverage"] = seconds.get("coverage", 0.0) + seconds["compare"] - before  # which is told apart
    seconds["compare"] = before
    refuse_wrong(run, states)
    if run.cell.converted or not answers(run.cell):
        return
    says, seen, of = run.cell.case.says, known["seen"], known["of"]
    if says.hollow is None and says.vacuous is None and seen < ENOUGH * of:
        text = (
            f"{seen} of {of} operator calls show in what the module returns: others may be wrong, and nothing fails"
        )
        asleep = says.weights is None and any(True for _ in run.reference.module.parameters())
        hints = ["hollow" if asleep else "hollow inputs"]
        raise Stopped("compare", "Hollow", text, "case", {"hints": hints, "draw": None, "worst": None})
    sampled = "calls" in known  # twelve of a hundred calls that show do not say that nearly all do
    if says.hollow is not None and not (says.vary or sampled or "unknown" in known) and seen >= PLENTY * of:
        text = f"{seen} of {of} operator calls show in what the module returns; take hollow: out"
        raise Stopped("compare", "NotHollow", text, "case", {"draw": None, "worst": None})


def answers(cell: Cell) -> bool:
    """Return whether this is the one cell of its case that fails where too little of the module is seen: the first
    accuracy cell in fp32 of which no failure is declared, of ONNX Runtime if it runs the case."""
    cells = [other for other in plan(cell.case) if other.check == "accuracy" and not other.converted]
    sound = [other for other in cells if not expectations(other)]

    def order(other: Cell) -> tuple[bool, ...]:
        runtime = str(other.runtime)
        builds = registry.named(runtime).builds
        return bool(declared(other)), builds, runtime != "onnxruntime", runtime == "onnx-reference"

    return bool(sound) and min(sound, key=order).id == cell.id


def _known(run: CellRun, verify: Verifier) -> dict[str, object]:
    """The record's field, from this process, an earlier run, another case that asks the same, or measured now."""
    prepared, judge = run.prepared, verify.judge
    assert judge is not None
    name, case = repr(judge.as_dict()), prepared.case
    if name not in prepared.coverage:
        parts = question_of(case), prepared.reference.weights, name, run.suite
        folder = run.settings.store.parent / "coverage"
        key = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
        known = run.keeping_of_case.kept(folder, key, lambda: _measured(run, verify))
        prepared.coverage[name] = _placed(known, case)
    return prepared.coverage[name]


def _measured(run: CellRun, verify: Verifier) -> dict[str, object]:
    if run.cell.case.says.onnx is not None:  # nothing in a file can be disturbed as a call of PyTorch can
        return {"seen": 0, "of": 0, "blind": []}
    try:
        own = _another(run.reference)
        asked = (run, verify, own)
        beyond = partial(_beyond, *asked) if has_ranges(run.cell.case) else None
        tenths = () if run.cell.converted else TENTHS
        covered = measure(own.module, _trials(*asked), runs_within, tenths, beyond)
    except Unknown as unknown:
        why = {"why": str(unknown)} if str(unknown) else {}
        return {"seen": 0, "of": 0, "blind": [], "unknown": unknown.name, **why}
    return told(covered)


def _another(reference: Reference) -> Reference:
    """The same on a module of its own: a copy, or one that is built again where the module cannot be copied."""
    copy = attempt(reference.copied)
    return reference_of(reference.case, reference.folder) if isinstance(copy, Exception) else copy


FORWARD = "<forward>"
"""In the places of ``told``: an expression in a case file, which is another one in each case."""


def told(covered: Covered) -> dict[str, object]:
    """The record's field: how many calls are seen of how many, and the places of those that are not, each with how
    many calls it has; ``calls`` and ``places`` where these are not all."""
    places, blind = _places(covered.blind)
    known: dict[str, Any] = {
        "seen": len(covered.seen), "of": len(covered.seen) + len(covered.blind), "blind": blind
    }  # fmt: skip
    if covered.calls > known["of"]:
        known["calls"] = covered.calls
    if places > PLACES:
        known["places"] = places
    if covered.beyond:
        known["beyond"] = _places(covered.beyond)[1]
    if paths := hidden(covered):
        known["hidden"] = paths
    return known


def _places(sites: Sequence[CallSite]) -> tuple[int, list[dict[str, Any]]]:
    """Return at how many places these calls are, and the first of them."""
    places = Counter((site.module, _place(site.at), site.op) for site in sites)
    told = [
        {"module": module, "at": at, "op": op, "count": count}
        for (module, at, op), count in itertools.islice(places.items(), PLACES)
    ]
    return len(places), told


def _place(at: str | None) -> str | None:
    return FORWARD if at is not None and at.startswith("<forward of ") else at


def _placed(known: dict[str, Any], case: Case) -> dict[str, object]:
    """Return what is known, with the place of the case for that of its expression."""
    own = f"{display_path(case.file)}:{case.line}"
    placed: dict[str, object] = {
        name: [{**entry, "at": own if entry["at"] == FORWARD else entry["at"]} for entry in known[name]]
        for name in ("blind", "beyond") if name in known
    }  # fmt: skip
    return {**known, **placed}


def _trials(run: CellRun, verify: Verifier, own: Reference) -> Iterator[CoverageTrial]:
    """The draws of the case, each with ``own`` run on it; draws on which PyTorch raises are left out."""
    # of a converted model it is only told, and answers for nothing
    for draw in itertools.islice(draws(run.prepared), 1 + PLAIN if run.cell.converted else DRAWS):
        with contextlib.suppress(Stopped):
            zeroed = run.prepared.zeroed.setdefault(f"{draw.as_dict()} {sorted(_apart(verify))}", Zeroed())
            yield _trial(verify, own, draw, verify.inputs(draw), zeroed)


def _beyond(run: CellRun, verify: Verifier, own: Reference) -> Iterator[CoverageTrial]:
    """The same beyond the values that the case declares, where PyTorch takes them; nearer ones first."""
    plain = [draw for draw in draws(run.prepared) if draw.regime == "plain"][: 1 + PLAIN]
    for times in (1, *FARTHER):
        for draw, inputs in inputs_beyond(run.reference, run.prepared.maker, plain, times):
            with contextlib.suppress(Stopped):
                yield _trial(verify, own, draw, inputs, Zeroed())


def _apart(verify: Verifier) -> frozenset[int]:
    """The numbers of the outputs that need not show anything."""
    return frozenset(number for number, output in enumerate(verify.outputs()) if output.shows_nothing)


def _trial(verify: Verifier, own: Reference, draw: Draw, inputs: Inputs, zeroed: Zeroed) -> CoverageTrial:
    """A draw with ``own`` run on it; Stopped where PyTorch raises."""
    example = Example(draw, lambda: inputs, partial(_answers, verify), verify.conditioning)
    wanted = [array.copy() for array in example.wanted]
    size = sum(array.size for array in inputs.values())
    run, notices = partial(own.afresh, inputs), partial(_notices, verify, example)
    return CoverageTrial(run, wanted, notices, _apart(verify), zeroed, size)


def _answers(verify: Verifier, inputs: Inputs) -> Answers:
    """Return what PyTorch gives, in place of what a converted model means too: it is asked whether a wrong module
    shows."""
    reference = verify.reference
    wanted = reference.afresh(inputs)
    return wanted, (lambda: wanted) if verify.cell.converted else partial(reference.oracle, inputs)


def _notices(verify: Verifier, example: Example, got: list[Array]) -> bool:
    """Return whether the cell would fail with these outputs; on plain values by ``MARGIN``, and so on others too."""
    comparison = verify.compare(got, example.right())
    worst = comparison.worst
    if comparison.error == "WrongValue" and worst is not None and not verify.cell.converted:
        if worst.error >= CERTAIN * largest_of(example.wanted[worst.output]):
            return True
        if example.draw.regime == "plain":  # hardly ever badly conditioned
            return worst.ratio >= MARGIN
        right = example.right("few")
        if right.conditioning is not None:
            comparison = verify.compare(got, right)
            if comparison.worst is None or comparison.worst.ratio < MARGIN:
                return False  # that wrong module would show only by chance
            comparison = verify.compare(got, example.right("all"))
    return comparison.verdict == "failed"
