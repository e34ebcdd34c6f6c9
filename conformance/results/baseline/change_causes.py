"""Facts that explain changes: how the hosts and versions of two runs differ, and how two graphs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from conformance.results.baseline.change import Run
from conformance.results.baseline.timing import timing
from conformance.results.records.record_types import Environment, Graph, Header

Instructions: TypeAlias = frozenset[str] | None
"""The instruction sets of a processor; None where a run's header does not say."""

_EXPORTERS = ("torch", "onnxscript", "onnx_ir", "onnx", "onnxsim", "onnxslim")


def environment_changes(before: Run, after: Run) -> list[str]:
    """List what differs between the two runs besides their cells, one line each.

    Versions first, then processors, then whatever makes cells incomparable.
    """
    old, new = _environment(before[0]), _environment(after[0])
    return [
        *_values(old, new),
        *_processors(old, new),
        *_options(old, new),
        *_not_comparable(before, after),
        *_unfinished(after[0]),
    ]


def same_exporters(before: Header, after: Header) -> bool:
    """Return whether two exports of one module have to be the same bytes.

    An ONNX file names the version that made it.
    """
    versions = [_environment(header).get("versions") or {} for header in (before, after)]
    return all(versions[0].get(name) == versions[1].get(name) for name in _EXPORTERS)


def same_processor(before: Header, after: Header) -> bool:
    """Return whether latencies of the two runs, by their headers, are comparable.

    They never are if a run has several processors.
    """
    old, new = _environment(before), _environment(after)
    return all(old.get(kind) == new.get(kind) and not _mixed(old.get(kind)) for kind in ("cpu", "gpu"))


def instructions_of(header: Header) -> Instructions:
    """The instruction sets of a run's processor, by which libraries choose their kernels."""
    cpu = _environment(header).get("cpu")
    names = cpu.get("instructions") if isinstance(cpu, Mapping) else None
    return None if names is None else frozenset(map(str, names))


def versions_of(header: Header) -> Mapping[str, str | None]:
    """Return the versions of a run's packages, by their names."""
    versions = _environment(header).get("versions")
    return versions if isinstance(versions, Mapping) else {}


def graph_change(before: Graph, after: Graph, *, by_bytes: bool) -> str | None:
    """Describe how the graph (``{opset, nodes, sha}``) changed.

    ``by_bytes``: also where the nodes are equal and the sha is another one.
    """
    parts = []
    if before["opset"] != after["opset"]:
        parts.append(f"opset {before['opset']} -> {after['opset']}")
    old, new = before.get("nodes") or {}, after.get("nodes") or {}
    differing = {name: (old.get(name, 0), new.get(name, 0)) for name in sorted({*old, *new})}
    differing = {name: counts for name, counts in differing.items() if counts[0] != counts[1]}
    if differing:
        counts = ", ".join(f"{name} {was} -> {now}" for name, (was, now) in differing.items())
        parts.append(f"{sum(old.values())} -> {sum(new.values())} nodes ({counts})")
        if "Constant" in differing and all(was > now for was, now in differing.values()):
            parts.append("constants were folded")
    if not parts and by_bytes and before.get("sha") != after.get("sha"):
        parts.append("same nodes, but attributes, wiring or constants differ")
    return "; ".join(parts) or None


def _environment(header: Header) -> Environment:
    return header.get("environment") or {}


def _values(old: Environment, new: Environment) -> Iterator[str]:
    for name in ("conformance", "python", "platform", "cores"):
        if old.get(name) != new.get(name):
            yield f"{name} {_word(old.get(name))} -> {_word(new.get(name))}"
    versions = old.get("versions") or {}, new.get("versions") or {}
    for name in dict.fromkeys([*versions[0], *versions[1]]):
        was, now = (packages.get(name) or "not installed" for packages in versions)
        if was != now:
            yield f"{name} {was} -> {now}"


def _processors(old: Environment, new: Environment) -> Iterator[str]:
    for kind in ("cpu", "gpu"):
        was, now = old.get(kind), new.get(kind)
        if was == now:
            continue
        if _name(was) != _name(now):
            yield f"{kind} {_name(was)} -> {_name(now)}"
        lost, won = _instructions(was) - _instructions(now), _instructions(now) - _instructions(was)
        if lost or won:
            words = [*(f"without {name}" for name in sorted(lost)), *(f"with {name}" for name in sorted(won))]
            yield f"{kind} instructions: now {', '.join(words)}"
        elif _name(was) == _name(now):
            yield f"{kind} {_name(now)}: described otherwise ({_word(was)} -> {_word(now)})"


def _options(old: Environment, new: Environment) -> Iterator[str]:
    was, now = old.get("flags"), new.get("flags")
    if was is not None and now is not None and was != now:  # a baseline has none
        yield f"arguments: {' '.join(was)} -> {' '.join(now)}"


def _not_comparable(before: Run, after: Run) -> Iterator[str]:
    timed = all(any(timing(record.latency) for record in run[1]) for run in (before, after))
    if timed and not same_processor(before[0], after[0]):
        yield "latencies are not comparable: other processor"
    if not same_exporters(before[0], after[0]):
        yield "models with equal nodes are not compared by their bytes, which name the exporter's version"


def finished(header: Header) -> bool:
    """Return whether the run reached all its cells, or all parts of it did."""
    return ("seconds" in header or "baseline" in header) and not header.get("unfinished")


def _unfinished(header: Header) -> Iterator[str]:
    if "seconds" not in header and "baseline" not in header:
        yield "the later run did not finish: what it did not reach counts as vanished"
    for name in header.get("unfinished") or []:
        yield f"the later run is without a part of {name}: what that did not reach counts as vanished"


def _name(processor: object) -> str:
    if isinstance(processor, Mapping):
        return str(processor.get("name") or processor)
    return "none" if processor is None else str(processor)


def _instructions(processor: object) -> set[str]:
    return set(map(str, processor.get("instructions") or ())) if isinstance(processor, Mapping) else set()


def _mixed(processor: object) -> bool:
    return isinstance(processor, Mapping) and bool(processor.get("mixed"))


def _word(value: object) -> str:
    return "unknown" if value is None else str(value)
