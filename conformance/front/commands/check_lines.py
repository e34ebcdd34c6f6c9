"""The lines in which ``conformance check`` says what came of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from conformance.compare.places import MOST
from conformance.results.records.record import Record
from conformance.results.records.record_types import Fidelity
from conformance.results.records.sanitize import one_line

if TYPE_CHECKING:
    from conformance.cells.check_models import CheckedModel


TO_CORRECT = ("ForeignData", "UnknownOption")


def describe_model(one: CheckedModel) -> Iterator[str]:
    """Yield what came of a model among several, in one line, and its cells that are not green."""
    if one.refused:
        yield f"refused {': '.join(map(str.strip, one.refused.splitlines()))}"
        return
    red = one.failed()
    right = "; ".join(f"{runtime} {', '.join(words)}" for runtime, words in one.verified().items())
    word = "FAILED " if one.is_wrong() else "right  " if right else "skipped"
    yield f"{word} {one.file}{f': {right}' if right and not red else ''}  {one.seconds:.1f} s"
    yield from (f"  {line}" for line in describe_narrow(one))
    skipped = [record for record in one.records if record.status == "skipped" and not right]
    reasons: set[str] = set()
    for word, record in (*(("FAILED ", each) for each in red), *(("skipped", each) for each in skipped)):
        reason = f"{record.error}: {record.reason}" if record in red else str(record.reason)
        yield f"  {word} {record.id}: {'for the same reason' if reason in reasons else reason}"
        reasons.add(reason)


def describe_totals(checked: Sequence[CheckedModel]) -> Iterator[str]:
    """Yield how many models came out in which way."""
    red = [one for one in checked if one.is_wrong()]
    right = [one for one in checked if one.verified() and not one.is_wrong()]
    refused = [one for one in checked if one.refused]
    rest = len(checked) - len(red) - len(right) - len(refused)
    yield ""
    yield (
        f"{len(checked):,} models: {len(right):,} right, {len(red):,} wrong, {rest:,} not verified, "
        f"{len(refused):,} cannot be checked"
    )
    yield "compared with what the files themselves say; how they were exported is not checked"


def describe_verdict(one: CheckedModel, records: Sequence[Record]) -> Iterator[str]:
    """Say in which runtimes and precisions the file is right, and what that was compared with."""
    from conformance.cells.check_models import verified

    if one.refused:
        yield f"refused {one.refused}"
        return
    right = verified(records, one.floats)
    if right and not any(record.status == "failed" for record in records):
        told = "; ".join(f"{runtime} in {', '.join(precisions)}" for runtime, precisions in right.items())
        yield f"right: {told}"
        first = next((f"{record.meaning} says" for record in records if record.shipped), "the file itself says")
        yield f"compared with what {first}; how it was exported is not checked"


def describe_narrow(one: CheckedModel) -> Iterator[str]:
    """Tell which dims the file leaves open that run at no size above one; those that are proven first."""
    dims = sorted(one.narrow, key=lambda dim: not dim.proven)
    yield from (f"{'wrong' if dim.proven else 'not verified'}: {dim}" for dim in dims[:_MOST_NARROW])
    if more := dims[_MOST_NARROW:]:
        yield f"so it is of {len(more):,} more: {one_line(', '.join(dim.name for dim in more), 200)}"


_MOST_NARROW = 3


def describe_uncounted(one: CheckedModel) -> Iterator[str]:
    """Tell which cells fail and count for nothing, once for each reason, and what would count them; none of those
    that fail for a reason that is told of others."""
    from conformance.runtimes import registry

    told = {record.reason for record in one.failed()}
    alike: dict[tuple[str | None, str], list[str]] = {}
    for record in one.records:
        if record.id in one.uncounted and record.error not in TO_CORRECT and record.reason not in told:
            how = f"--runtime {registry.RTX}" if record.runtime == registry.RTX else "--precision int8"
            alike.setdefault((record.reason, how), []).append(record.id)
    for (reason, how), ids in alike.items():
        yield f"not counted: {', '.join(ids)}: {reason} ({how} counts {'it' if len(ids) == 1 else 'them'})"


def describe_unfinished(checked: Sequence[CheckedModel]) -> Iterator[str]:
    """Say after Ctrl-C of what there is no verdict."""
    left = [name for one in checked for name in one.unfinished]
    if left:
        named = ", ".join(left[:_MOST_UNFINISHED])
        more = f" and {len(left) - _MOST_UNFINISHED:,} more" if len(left) > _MOST_UNFINISHED else ""
        yield f"interrupted: no verdict on {named}{more}"


_MOST_UNFINISHED = 4


def _of_others(cost: Fidelity) -> Iterator[str]:
    """Yield what decibels over all values hide, of a model that others have converted."""
    channel, sqnr = cost.get("channel"), cost.get("channel_sqnr")
    worst = [f"worst channel {channel}: {float(sqnr):.1f} dB"] if sqnr is not None else []
    if rows := cost.get("rows"):
        first, last = rows["first"], rows["last"]
        which = f"row {first}" if first == last else f"rows {first} to {last}"
        worst.append(f"worst {which} of axis {rows['axis']}{_at(rows['dims'])}: {float(rows['sqnr']):.1f} dB")
    yield "; ".join(worst)
    together = f"all values together {cost.get('bias', 0.0):+.2%}"
    if apart := cost.get("apart"):
        count = f"{MOST} or more" if apart["count"] == MOST else str(apart["count"])
        where = f"most of all {apart['index']}{_at(apart['dims'])}"
        together += f"; {count} of {apart['of']:,} values stand out from the noise, {where}"
    yield together


def _at(dims: Mapping[str, object]) -> str:
    return f" at {', '.join(f'{name}={size}' for name, size in dims.items())}" if dims else ""


def describe_summary(records: Sequence[Record], floats: str = "fp32") -> Iterator[str]:
    """Tell of each precision its loss, size and times, in a table, what hides behind the loss of a file of others,
    and what only was built; ``floats`` is the precision of the file as it is."""
    yield from _table(records, floats)
    for record in records:
        cost, changed = record.fidelity or {}, (record.conversion or {}).get("changed") or []
        if record.shipped is not None and cost.get("sqnr") is not None:
            yield from _of_others(cost)
        if changed and record.check == "fidelity":
            names = ", ".join(map(str, changed))
            yield f"of what was not converted, these weights have other bytes than in the original: {names}"
        if clipped := (record.conversion or {}).get("clipped"):
            yield f"weights with values outside of their range, which is a loss and no mistake: {clipped}"
    for record in records:
        if (left := record.left_out) and _time(record) is not None:
            count = f"{left['examples']} more examples"
            yield f"{record.runtime} {record.precision}: {count} left out after {left['seconds']:g} s (--budget)"
    built = [one for one in records if one.check == "build" and one.status == "passed" and one.compiled]
    if built and (told := built[0].compiled):
        precisions = ", ".join(record.precision for record in built)
        yield f"parsed and built by {told['by']} for {', '.join(told['targets'])}: {precisions}; nothing was run"


def _table(records: Sequence[Record], floats: str) -> Iterator[str]:
    """Yield a row for each precision: what it loses, how large its model is, and how long an example takes."""
    times = {(record.precision, str(record.runtime)): time for record in records if (time := _time(record))}
    losses = {record.precision: loss for record in records if (loss := _loss(record))}
    sizes = {record.precision: int(size) for record in records if (size := (record.graph or {}).get("bytes"))}
    if not times and not losses:
        return
    runtimes = list(dict.fromkeys(runtime for _, runtime in times))
    rows = [["precision", *(["loss"] if losses else []), "size", *runtimes]]
    first = next((record.precision for record in records if record.precision in sizes), "")
    for precision in sizes:
        row = [floats if precision == "fp32" else precision, *([losses.get(precision, "")] if losses else [])]
        row.append(_beside(sizes[precision], sizes[first], _size, precision == first))
        for runtime in runtimes:
            time, whole = times.get((precision, runtime)), times.get((first, runtime))
            row.append("" if time is None else _beside(time, whole, _milliseconds, precision == first))
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    cost = next((record for record in records if _loss(record)), None)
    counts = sorted({_count(record) for record in records if _time(record)})
    legend = [] if cost is None else [f"loss: SQNR against {cost.meaning if cost.shipped else 'the file itself'}"]
    if counts:
        fewest = f"{counts[0]} to " if counts[0] < counts[-1] else ""
        legend.append(f"times: an example, of {fewest}{counts[-1]} drawn ones")
    yield "; ".join(legend)


def _count(record: Record) -> int:
    return record.examples + record.ill_conditioned + record.nothing


def _time(record: Record) -> float | None:
    """Return the seconds of an example in a runtime that is right; None of any other record."""
    right = record.check == "accuracy" and record.status == "passed" and _count(record)
    return record.seconds.get("run", 0.0) / _count(record) if right else None


def _loss(record: Record) -> str | None:
    cost = record.fidelity or {}
    sqnr, changed = cost.get("sqnr"), cost.get("changed")
    return f"{float(sqnr):.1f} dB" if sqnr is not None else f"{changed:.1%} differ" if changed is not None else None


def _beside(value: float, whole: float | None, worded: Callable[[float], str], itself: bool) -> str:
    """Return a measurement in words, with its ratio to that of the original."""
    return worded(value) if itself or not whole else f"{worded(value)}, {value / whole:.2g} x"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _size(count: float) -> str:
    """Return a number of bytes in words."""
    power = min(int(math.log(max(count, 1), 1024)), len(_UNITS) - 1)
    return f"{count / 1024**power:.3g} {_UNITS[power]}"


_UNITS = ("B", "KiB", "MiB", "GiB")
