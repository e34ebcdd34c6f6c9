"""The matrix at the end of a run: cases down; exporter, runtime, precision and opset across."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from conformance.results.records import coverage_totals, text
from conformance.results.records.brief import SLOW_SECONDS, Told
from conformance.results.records.record_types import Budget
from conformance.results.records.sanitize import shorten
from conformance.results.records.spent import START, own_seconds
from conformance.results.records.validation import Measure
from conformance.runtimes.registry import RUNTIMES

Column = tuple[str, str, str, int]
"""exporter, runtime, precision, opset"""
Key = tuple[str, Column]
"""A case and a column."""

_SIGNS = {"passed": "✓", "xfailed": "x", "skipped": "s", "xpassed": "X", "failed": "F"}
_EXPORTERS = {"torchscript": "ts", "dynamo": "dyn", "onnx": "onnx"}
_PARTS = {"export": "export", "cost": "cost", **{runtime.name: runtime.short or runtime.name for runtime in RUNTIMES}}
"""What stands beside an exporter, in order, with its short name."""
_SHORT = {**_EXPORTERS, **_PARTS}

MEANINGS = {
    "✓": "passed", "x": "failed as declared", "F": "failed", "X": "passed though declared to fail", "s": "skipped",
    "·": "not a cell", "n": "a further check failed as declared", "N": "a further check is red",
}  # fmt: skip
"""The meaning of the signs, in the order of a legend."""
_FURTHER = (
    "further checks: NaN and infinities, steps, registration, cost of the precision, metric, preparation, engine, "
    "build, meaning"
)

_COLUMNS = {
    "ts": "TorchScript", "dyn": "dynamo", "ref": "ONNX's evaluator",
    **{entry.short: entry.title for entry in RUNTIMES if entry.short and entry.name != "onnx-reference"},
}  # fmt: skip
"""The meaning of the short names at the head of a matrix."""

MOST_LINES = 24
"""Lines of a matrix that shows every case; of a longer one the cases that are as expected are left out."""


def lines(records: Sequence[Told], width: int, *, full: bool = True) -> Iterator[str]:
    """The matrix in at most ``width`` columns; each exporter × runtime × precision is a block of opsets.

    A cell shows its accuracy, or its export under ``export``, and by ``sign`` its further checks: specials,
    registration, what the precision costs, engine. A runtime of which not one cell was run has no columns, but a line
    that says so. Unless it is ``full``, a long matrix has the cases alone that made the run fail, and sums of all.
    """
    missing = not_run(records)
    for runtime in missing:
        records = [record for record in records if record.runtime != runtime]
    table = [*_table_lines(records, width)]
    if full or len(table) <= MOST_LINES:
        yield from table
    else:
        yield from _short_table(records, width)
    for runtime, (count, reasons) in missing.items():
        said = text.not_run(runtime, count, reasons)
        yield from textwrap.wrap(said, max(width, 40), subsequent_indent="  ", break_long_words=False)


def legend(shown: Sequence[str]) -> Iterator[str]:
    """The legend of a matrix of these lines: the signs that occur in it."""
    text = "\n".join(shown)
    found = [sign for sign in MEANINGS if re.search(rf"(?<!\S){re.escape(sign)}(?!\S)", text)]
    if found:
        yield "   ".join(f"{sign} {MEANINGS[sign]}" for sign in found)
    if {"n", "N"} & {*found}:
        yield _FURTHER
    columns = [f"{short} {long}" for short, long in _COLUMNS.items() if re.search(rf"(?<!\S){short}(?!\S)", text)]
    if columns:
        yield "   ".join(columns)


def _short_table(records: Sequence[Told], width: int) -> Iterator[str]:
    """The cases that made a run fail, and how many cells of each kind passed, failed as declared, or did not run."""
    red = {record.case for record in records if record.status in ("failed", "xpassed")}
    others = len({record.case for record in records} - red)
    if red:
        table = [*_table_lines([record for record in records if record.case in red], width)]
        yield from table[:MOST_LINES]
        if len(table) > MOST_LINES:
            yield "and more red cases"
        yield ""
    head = ("cells", "passed", "as declared", "skipped", "red")
    yield f"{'all cases' if not red else f'{others} other cases are as expected; all':<{_KIND}}" + _numbers(head)
    for kind, statuses in _by_kind(records):
        counted = [statuses[status] for status in ("passed", "xfailed", "skipped")]
        yield f"{kind:<{_KIND}}" + _numbers((statuses.total(), *counted, statuses["failed"] + statuses["xpassed"]))


_KIND = 34
"""Characters of what a line of sums is about."""


def _numbers(values: Iterable[object]) -> str:
    return "".join(f"{value if value != 0 else '':>{max(8, len(str(value)) + 2)}}" for value in values)


def _by_kind(records: Iterable[Told]) -> Iterator[tuple[str, Counter[str]]]:
    counted: dict[Column, Counter[str]] = {}
    for record in records:
        if record.check != "latency":
            exporter, part, precision, _ = column(record)
            key = exporter, part, precision.partition("-")[0], 0
            counted.setdefault(key, Counter())[record.status] += 1
    for (key,) in groups(counted):
        exporter, part, precision, _ = key
        yield " ".join([exporter, part, *([precision] if part != "export" else [])]), counted[key]


def cases_of(records: Iterable[Told]) -> list[str]:
    """The cases as they stand in the case files, whatever order they ran in; those of one place by name."""
    places: dict[str, tuple[str, int, str]] = {}
    for record in records:
        file, line = record.source.get("file") or "", record.source.get("line") or 0
        places.setdefault(record.case, (file, line, record.case))
    return sorted(places, key=places.__getitem__)


def not_run(records: Sequence[Told]) -> dict[str, tuple[int, list[str]]]:
    """By runtime of which every cell was skipped: how many there are, and why."""
    run = {record.runtime for record in records if record.status != "skipped"}
    unrun: dict[str, tuple[int, list[str]]] = {}
    for record in records:
        if record.runtime is not None and record.runtime not in run and record.check != "latency":
            count, reasons = unrun.get(record.runtime, (0, []))
            unrun[record.runtime] = count + 1, list(dict.fromkeys([*reasons, str(record.reason)]))
    return unrun


def _table_lines(records: Sequence[Told], width: int) -> Iterator[str]:
    # A budget of time that could not be decided, or not in this kind of run, has a line of its own.
    shown = [one for one in enumerate(records) if one[1].check != "latency" or one[1].status != "skipped"]
    own, beside = by_key(shown)
    signs: dict[str, dict[Column, str]] = {case: {} for case in cases_of(records)}
    for key in own | beside:
        numbers = (worst(records, of.get(key, [])) for of in (own, beside))
        signs[key[0]][key[1]] = sign(*(None if number is None else records[number].status for number in numbers))
    label = min(max(map(len, signs), default=0), max(16, width // 2))
    columns = (column for of_case in signs.values() for column in of_case)
    for index, group in enumerate(_fitting(groups(columns), width - label - 1)):
        if index:
            yield ""
        yield from _table(group, signs, label)


OWN = ("accuracy", "export", "parse")
"""The checks whose status a sign is; others stand beside them."""


def by_key(shown: Iterable[tuple[int, Told]]) -> tuple[dict[Key, list[int]], dict[Key, list[int]]]:
    """Return by case and column the numbers of the rows that are a cell's own, and of those that stand beside it."""
    own: dict[Key, list[int]] = {}
    beside: dict[Key, list[int]] = {}
    costs: list[tuple[int, Told]] = []
    for number, row in shown:
        if row.check == "fidelity":
            costs.append((number, row))
        else:
            (own if row.check in OWN else beside).setdefault((row.case, column(row)), []).append(number)
    runtimes: dict[tuple[str, str, str, int], list[Key]] = {}
    for case, (exporter, runtime, precision, opset) in own:
        of_model = runtimes.setdefault((case, exporter, precision, opset), [])
        of_model.append((case, (exporter, runtime, precision, opset)))
    for number, row in costs:  # stands beside each runtime of its precision, or alone where there is none
        keys = runtimes.get((row.case, row.exporter, row.precision, row.opset), [])
        for key in keys:
            beside.setdefault(key, []).append(number)
        if not keys:
            own.setdefault((row.case, column(row)), []).append(number)
    return own, beside


def worst(rows: Sequence[Told], numbers: Sequence[int]) -> int | None:
    """Return which of these rows, which share a sign, counts; None where there is none."""
    return max(numbers, key=lambda number: WORSE.index(rows[number].status), default=None)


WORSE = ("passed", "skipped", "xfailed", "xpassed", "failed")
"""The statuses of checks that share a sign: the last of them counts."""


def column(record: Told) -> Column:
    part = record.runtime or ("cost" if record.check == "fidelity" else "export")
    return record.exporter, part, record.precision, record.opset


def sign(own: str | None, beside: str | None) -> str:
    """Return the sign of a cell by the status of its own check, and the worst of its further checks: specials,
    registration, fidelity, metric, preprocess, engine, build, meaning. None stands for no check. What is red always
    shows; a further check that was skipped, as where nothing could be said of NaN, takes nothing away from a pass."""
    if beside in ("failed", "xpassed") and own not in ("failed", "xpassed"):
        return "N"
    if beside == "xfailed" and own in (None, "passed"):
        return "n"
    return _SIGNS[own or beside or "passed"]


def groups(columns: Iterable[Column]) -> list[list[Column]]:
    """Columns in order, those with equal exporter, runtime and precision together."""
    order = {name: place for names in (_EXPORTERS, _PARTS) for place, name in enumerate(names)}
    last = len(order)  # the place of names that only a later version knows
    ordered = sorted(set(columns), key=lambda c: (order.get(c[0], last), order.get(c[1], last), c[2], c[3]))
    groups: dict[tuple[str, str, str], list[Column]] = {}
    for column in ordered:
        groups.setdefault(column[:3], []).append(column)
    return list(groups.values())


def _fitting(groups: list[list[Column]], room: int) -> Iterator[list[list[Column]]]:
    """As many groups side by side as there is room for; a group wider than that is cut."""
    most = max(1, (room - 2) // 3)
    pieces = [group[i : i + most] for group in groups for i in range(0, len(group), most)]
    line: list[list[Column]] = []
    used = 0
    for piece in pieces:
        needs = _width(piece)
        if line and used + needs > room:
            yield line
            line, used = [], 0
        line.append(piece)
        used += needs
    if line:
        yield line


def _title(group: list[Column]) -> str:
    exporter, runtime, precision, _ = group[0]
    words = [_SHORT.get(exporter, exporter), _SHORT.get(runtime, runtime)]
    return " ".join(words if runtime == "export" else [*words, precision])


def _width(group: list[Column]) -> int:
    return max(3 * len(group), len(_title(group))) + 2


def _table(groups: list[list[Column]], signs: Mapping[str, Mapping[Column, str]], label: int) -> Iterator[str]:
    yield (" " * label + "".join(f"  {_title(group):<{_width(group) - 2}}" for group in groups)).rstrip()
    yield (" " * label + "".join(f"  {''.join(f'{c[3]:>2} ' for c in g):<{_width(g) - 2}}" for g in groups)).rstrip()
    short = _short(list(signs), label)
    for case, own in signs.items():
        if not any(column in own for group in groups for column in group):
            continue
        row = ""
        for group in groups:
            text = "".join(f" {own[c]} " if c in own else " · " for c in group)
            row += f"  {text:<{_width(group) - 2}}"
        yield f"{short[case]:<{label}}{row}".rstrip()


def _short(cases: Sequence[str], label: int) -> dict[str, str]:
    """The names in at most ``label`` columns, cut in the middle, further left the more this tells them apart."""
    long = [case for case in cases if len(case) > label]
    tails = ({case: f"{case[: label - 1 - tail]}…{case[len(case) - tail :]}" for case in long}
             for tail in range(label // 2, label - 1))  # fmt: skip
    best = max(tails, key=lambda names: len({*names.values()}), default={})
    return {case: best.get(case, case) for case in cases}


def counts(records: Sequence[Told]) -> str:
    """``12 passed, 3 failed as declared; 640 examples verified``."""
    words = {
        "failed": "failed", "xpassed": "passed though declared to fail", "skipped": "skipped",
        "xfailed": "failed as declared", "passed": "passed",
    }  # fmt: skip
    totals = {status: sum(record.status == status for record in records) for status in words}
    parts = [f"{count} {words[status]}" for status, count in totals.items() if count]
    parsed = sum(record.examples for record in records if record.check == "meaning")  # no runtime ran these
    examples = sum(record.examples for record in records if record.runtime or record.check == "fidelity") - parsed
    weak = sum(record.ill_conditioned for record in records)
    cells = "1 cell" if len(records) == 1 else f"{len(records)} cells"
    text = f"{cells}: {', '.join(parts) or 'none'}; {examples} examples verified"
    text = f"{text}, and {parsed} of what TensorRT's parser made" if parsed else text
    text = f"{text}, {weak} ill-conditioned" if weak else text
    excused = sum(record.excused for record in records)
    text = f"{text}; {excused:,} values excused" if excused else text
    shown = coverage_totals.total(records)
    text = f"{text}; {shown}" if shown else text
    reused = sum(record.reused for record in records)
    return f"{text}; {reused} cells taken over from an earlier run" if reused else text


def in_brief(records: Sequence[Told]) -> Iterator[str]:
    """Yield in a line each what ``asides`` lists."""
    passed = [record for record in records if record.status == "passed"]
    yield from (f"nearest to what a precision may cost: {line.strip()}" for line in [*fidelity(passed, 1)][1:2])
    budgets = Counter(budget["verdict"] for record in records for budget in _budgets(record))
    if budgets:
        yield f"budgets of time: {', '.join(f'{count} {verdict}' for verdict, count in sorted(budgets.items()))}"
    yield from (line for line in latency(records) if line.startswith("NOT"))
    yield from slow(records, 1)
    cases = {record.case for record in records if record.changed}
    if cases:
        who = (
            "1 case changed the process that it"
            if len(cases) == 1
            else f"{len(cases)} cases changed the process that they"
        )
        yield f"{who} ran in, and no other case saw it"


def asides(records: Sequence[Told]) -> Iterator[str]:
    """Yield what else a run has shown: costs, budgets of time, calls that nothing shows, slow cells, changes."""
    for part in (fidelity, latency, coverage_totals.least, slow, changed):
        yield from part(records)


def _budgets(record: Told) -> Sequence[Budget]:
    return (record.latency or {}).get("budgets") or ()


def changed(records: Sequence[Told], most: int = 6) -> Iterator[str]:
    """The cases that changed something in the process that they ran in."""
    by_case: dict[str, list[str]] = {}
    for record in records:
        for change in record.changed:
            by_case.setdefault(record.case, []).append(str(change["what"]))
    lines = []
    for case, names in by_case.items():
        told = list(dict.fromkeys(names))
        more = f" and {len(told) - most} more" if len(told) > most else ""
        lines.append(f"  {case}: {', '.join(told[:most])}{more}")
    yield from shorten(lines, most, head="cases that changed the process they ran in (other cases did not see it):")


def fidelity(records: Sequence[Told], most: int = 12) -> Iterator[str]:
    """Yield what each precision costs, those nearest to what is allowed first."""
    measured = [
        (float(record.worst["ratio"]), record.fidelity, record.id)
        for record in records
        if record.fidelity and record.worst
    ]
    measured.sort(key=lambda known: -known[0])
    lines = []
    for ratio, measure, cell in measured:
        changed, sqnr = measure.get("changed"), measure.get("sqnr")
        cost = f"{changed:.1%} changed" if changed is not None else f"{_decibels(sqnr)} SQNR"
        lines.append(f"  {cost:>15} ({ratio:.2f})  {cell.partition('[')[2][:-1]}")
    head = "what a precision costs, against PyTorch in float32 (error / allowed):"
    yield from shorten(lines, most, "  and {} more, further from their limits", head)


def latency(records: Sequence[Told], most: int = 12) -> Iterator[str]:
    """The budgets of time and what was measured: broken budgets first, then those that were not decided."""
    measured = [(record, budget) for record in records for budget in _budgets(record)]
    order = ("broken", "inconclusive", "holds")
    measured.sort(key=lambda pair: (order.index(pair[1]["verdict"]), pair[0].id))
    lines = []
    for record, budget in measured:
        ratio = budget["ratio"]
        value = f"{ratio:.2f} x" if ratio is not None else f"{(budget['seconds'] or 0) * 1e3:.3g} ms"
        cell = record.id.partition("[")[2][:-1]
        lines.append(f"  {budget['verdict']:>12}  {value:>9}, {budget['text']}  {cell}")
    yield from shorten(lines, most, head="budgets of time (measured, at most):")
    idle = [record for record in records if record.check == "latency" and not record.latency]
    skipped = [record for record in idle if record.status == "skipped"]
    if skipped:
        reasons = "; ".join(dict.fromkeys(str(record.reason) for record in skipped))
        yield f"NOT MEASURED: {len(skipped)} budgets of time: {reasons}"


def _decibels(value: Measure | None) -> str:
    if value is None:
        return "unknown"
    return "no loss" if float(value) == float("inf") else f"{float(value):.1f} dB"


def slow(records: Sequence[Told], most: int = 3) -> Iterator[str]:
    """The slowest cells, where they are slow enough to be worth a look."""
    seconds = [(own_seconds(record), record) for record in records]
    slowest = sorted(seconds, key=lambda pair: -pair[0])[:most]
    for whole, record in slowest:
        if whole > SLOW_SECONDS:
            stages = {name: seconds for name, seconds in record.seconds.items() if name != START}
            stage = max(stages, key=lambda name: stages[name])
            yield f"slow: {record.id} took {whole:.0f} s, most of it in {stage}"
