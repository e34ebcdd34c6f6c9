"""Compare the operators of a model with what was measured of each, and say which exporter suits it best."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.extras.support.called_operators import CalledOperator
from conformance.results.records.known import Known
from conformance.results.records.operator_table import EXPORTERS, SEVERITY, MeasuredOutcome, OperatorTable
from conformance.results.records.words import Exporter


@dataclass(frozen=True)
class OperatorSupport:
    """Hold an operator of a model and what was measured of it; nothing where it was not."""

    called: CalledOperator
    measured: Mapping[Exporter, MeasuredOutcome]
    overload: str | None = None
    """The overload that was measured, where it is another one."""

    def fails(self, exporter: Exporter) -> bool:
        """Return whether it is known not to come out right with an exporter."""
        return exporter in self.measured and self.measured[exporter].outcome != "right"


@dataclass(frozen=True)
class ModelSupport:
    """Hold what is known of all operators of a model."""

    operators: Sequence[OperatorSupport]

    @cached_property
    def measured(self) -> list[OperatorSupport]:
        return [one for one in self.operators if one.measured]

    @cached_property
    def unmeasured(self) -> list[str]:
        return [one.called.name for one in self.operators if not one.measured]

    def failing(self, exporter: Exporter) -> list[OperatorSupport]:
        """Return the operators that are known not to come out right with an exporter."""
        return [one for one in self.operators if one.fails(exporter)]

    def right(self, exporter: Exporter) -> list[OperatorSupport]:
        """Return the operators that came out right with an exporter."""
        return [one for one in self.measured if exporter in one.measured and not one.fails(exporter)]

    @cached_property
    def best(self) -> list[Exporter]:
        """The exporters with which the fewest operators fail, of these with which the fewest are wrong, which nobody
        notices, then with which the most are right. None where nothing was measured."""
        least = min(map(self._badness, EXPORTERS))
        return [exporter for exporter in EXPORTERS if self._badness(exporter) == least] if self.measured else []

    def _badness(self, exporter: Exporter) -> tuple[int, int, int]:
        failing = self.failing(exporter)
        wrong = sum(one.measured[exporter].outcome == "wrong" for one in failing)
        return len(failing), wrong, -len(self.right(exporter))

    def as_dict(self, table: OperatorTable) -> dict[str, object]:
        """Return all that is known as plain data, with what it was measured with."""
        return {
            "measured": {"when": table.when, "versions": table.versions, "opsets": table.opsets},
            "best": [{"exporter": exporter, "opset": table.opsets[exporter]} for exporter in self.best],
            "operators": [dataclasses.asdict(one) for one in self.operators],
        }

    @property
    def exit_code(self) -> int:
        """0 where nothing is known to fail with the best exporter, 1 where something is, 5 where nothing was
        measured."""
        return int(bool(self.failing(self.best[0]))) if self.measured else 5


def support_of(called: Iterable[CalledOperator], table: OperatorTable) -> ModelSupport:
    """Return what a table says of the operators of a model."""
    return ModelSupport([_support(one, table) for one in called])


def _support(called: CalledOperator, table: OperatorTable) -> OperatorSupport:
    """Return what is known of an operator: what was measured of its overload, with the same texts; or, in place of
    one that writes to its argument, of that which does not; or of other overloads with these texts."""
    name, overload, words = _parts(called.name)
    for plain in dict.fromkeys((name, name.removesuffix("_"))):
        exact = table.calls.get(f"{plain}.{overload}{words}")
        if exact is not None:
            return OperatorSupport(called, exact)
    others = {
        other: found
        for other, found in table.calls.items()
        if (parts := _parts(other))[0] in (name, name.removesuffix("_")) and parts[2] == words
    }
    measured = {
        exporter: min(known, key=lambda one: SEVERITY.index(one.outcome))
        for exporter in EXPORTERS
        if (known := [found[exporter] for found in others.values() if exporter in found])
    }
    return OperatorSupport(called, measured, ", ".join(_parts(other)[1] for other in others) or None)


def _parts(name: str) -> tuple[str, str, str]:
    """Return ``aten.pad``, ``default`` and ``(reflect)`` of ``aten.pad.default(reflect)``."""
    target, bracket, words = name.partition("(")
    operator, _, overload = target.rpartition(".")
    return operator, overload, bracket + words


def base_of_operator(name: str) -> str:
    """Return ``aten.pad`` of ``aten.pad.default(reflect)``, as known defects name it."""
    return _parts(name)[0]


# ---- sentences -----------------------------------------------------------------------------------------------


def describe_advice(name: str, support: ModelSupport, table: OperatorTable) -> Iterator[str]:
    """Yield the answer: with which exporter a model is best exported, at which opset, and what fails with each."""
    count = len(support.operators)
    left = f", {len(support.unmeasured)} not measured" if support.unmeasured else ""
    if not support.best:
        yield f"None of the {count} operators of {name} was measured, so that nothing is known of it."
        return
    best = " or ".join(_titled(exporter, table) for exporter in support.best)
    passing = f"{len(support.right(support.best[0]))} of {count} operators{left}"
    if support.exit_code:
        yield f"No exporter passes PyTorch's samples of all operators of {name}. Most with {best}: {passing}."
    else:
        yield f"Export {name} with {best}. PyTorch's samples pass there of {passing}."
    for exporter in EXPORTERS:
        failing = support.failing(exporter)
        counts = {what: sum(one.measured[exporter].outcome == what for one in failing) for what in SEVERITY[:-1]}
        told = [f"{number} {_PLURAL[what] if number > 1 else what}" for what, number in counts.items() if number]
        if told:
            yield f"{_titled(exporter, table)}: {', '.join(told)}."


_PLURAL = {"wrong": "wrong", "does not run": "do not run", "not exported": "not exported"}


def _titled(exporter: Exporter, table: OperatorTable) -> str:
    return f"{EXPORTERS[exporter]} at opset {table.opsets[exporter]}"


def describe_operators(support: ModelSupport) -> Iterator[str]:
    """Yield the operators that fail with an exporter, each with what came of it; then the names of those that do not,
    and of those that nobody measured."""
    failing = [one for one in support.operators if any(map(one.fails, EXPORTERS))]
    for one in failing:
        calls = "1 call" if one.called.calls == 1 else f"{one.called.calls} calls"
        at = f", first at {one.called.line}" if one.called.line else ""
        other = f" (measured: {one.overload})" if one.overload else ""
        yield f"  {one.called.name}{other}: {calls}{at}"
        yield from (f"    {EXPORTERS[exporter]}: {_outcome(of)}" for exporter, of in one.measured.items())
    right = [one.called.name for one in support.measured if one not in failing]
    for head, names in (("right", right), ("not measured", support.unmeasured)):
        if names:
            yield f"  {head}: {', '.join(names)}"


def _outcome(measured: MeasuredOutcome) -> str:
    if measured.outcome == "right":
        return "right"
    by = f", by the {measured.fault}" if measured.fault in ("exporter", "runtime") else ""
    at = f" at {measured.place}" if measured.place else ""
    error = f" ({measured.error}{by}{at})" if measured.error else ""
    return f"{measured.outcome}, {measured.count} of {measured.of} samples{error}"


def describe_known(found: Iterable[tuple[Known, str]], names: Collection[str]) -> Iterator[str]:
    """Yield known defects about some of these operators, with who has them in which version."""
    for one, version in found:
        of, errors = ", ".join(sorted(one.operators & {*names})), ", ".join(sorted(one.errors))
        yield f"known of {of} ({', '.join(sorted(one.who))}, {one.package} {version}): {one.name}: {errors}"


def describe_measurement(table: OperatorTable, installed: Mapping[str, str | None]) -> Iterator[str]:
    """Yield when and with what a table was measured, and how what is installed differs."""
    of = ", ".join(f"{name} {table.versions.get(name)}" for name in ("torch", "onnxscript", "onnxruntime"))
    how = "PyTorch's own samples of each operator, in float32, with all tensors as inputs whose sizes vary"
    yield f"measured on {table.when} with {of}: {how}; nothing else was, and fixed sizes and weights may do better"
    differences = list(table.differences(installed))
    if differences:
        yield f"installed is another version, so that what is said may be no longer so: {', '.join(differences)}"
