"""The lines in which ``conformance check`` says what came of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
    right = verified(records)
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


def _of_others(cost: Fidelity) -> str:
    """Say of a model that others have converted what decibels over all values hide."""
    channel, sqnr = cost.get("channel"), cost.get("channel_sqnr")
    worst = f", worst channel {channel}: {float(sqnr):.1f} dB" if sqnr is not None else ""
    return f"{worst}; all values together {cost.get('bias', 0.0):+.2%}"


def describe_summary(records: Sequence[Record]) -> Iterator[str]:
    """Tell the cost of each precision, the time of an example in each runtime, and what only was built."""
    seconds = {record.shipped for record in records if record.precision == "fp32"}  # which the suite converts
    for record in records:
        cost, conversion = record.fidelity or {}, record.conversion or {}
        sqnr, changed = cost.get("sqnr"), conversion.get("changed") or []
        if sqnr is not None:
            what = "the file's own meaning" if record.shipped is None else f"{record.meaning}"
            more = "" if record.shipped is None else _of_others(cost)
            whose = record.shipped or record.precision
            made = f" in {record.precision}" if record.shipped in seconds and record.shipped else ""
            yield f"{whose}{made} against {what}: {float(sqnr):.1f} dB SQNR{more}"
        if changed and record.check == "fidelity":
            what = "a weight that stays in float32 has" if len(changed) == 1 else "weights that stay in float32 have"
            yield f"{what} other values than in the original: {', '.join(map(str, changed))}"
    for record in records:
        count = record.examples + record.ill_conditioned + record.nothing
        if record.check == "accuracy" and record.status == "passed" and count:
            spent = record.seconds.get("run", 0.0) / count
            left = record.left_out
            line = f"{record.runtime} {record.precision}: {1000 * spent:.3g} ms an example, of {count} drawn ones"
            yield f"{line}; {left['examples']} more left out after {left['seconds']:g} s (--budget)" if left else line
    built = [one for one in records if one.check == "build" and one.status == "passed" and one.compiled]
    if built and (told := built[0].compiled):
        precisions = ", ".join(record.precision for record in built)
        yield f"parsed and built by {told['by']} for {', '.join(told['targets'])}: {precisions}; nothing was run"
