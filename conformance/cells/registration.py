"""The check ``registration``: the case's own symbolics are needed, used, and gone afterwards."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.case.files.export_keys import Symbolic, TorchScript
from conformance.models.cell_run import CellRun
from conformance.models.exporters import graph, symbolics
from conformance.models.exporters.exporters import Exported
from conformance.process.errors import Stopped, attempt


def check_registration(run: CellRun) -> None:
    """Without its symbolics the export fails as declared; with them it works and uses every tensor input;
    afterwards the registry is as before."""
    target = run.target
    assert isinstance(target, TorchScript)
    before = symbolics.snapshot()
    declared: dict[str, Symbolic] = {**target.symbolics, **target.registers}
    with run.stages("export", "exporter"):
        plain = _plain_export(run)
        exported = run.export()
    with run.stages("check", "case"):
        for operator, names in exported.usage.fights.items():
            text = (
                f"{operator} is registered by {', then by '.join(names)}: the last one wins, so their order decides"
            )
            raise Stopped("check", "RegistrationFight", text, "case")
        _check_was_needed(declared, plain, exported)
        uncalled = _uncalled(exported.usage)
        if uncalled is not None:
            text = f"the symbolic of {uncalled} was never called: the module does not use this operator"
            raise Stopped("check", "UnusedSymbolic", text, "case")
        _check_ignored(declared, exported.usage)
        changed = symbolics.changed_since(before)
        if changed:
            raise Stopped(
                "check", "RegistryChanged", f"left changed after the export: {', '.join(changed)}", "harness"
            )
    run.record.examples = 2


def _plain_export(run: CellRun) -> Exported | str:
    """The export without the case's own symbolics, or the name of the error that it stops with."""
    plain = attempt(lambda: run.export(with_symbolics=False))
    if isinstance(plain, Stopped):
        return plain.error
    return type(plain).__name__ if isinstance(plain, Exception) else plain


def _check_was_needed(declared: Mapping[str, Symbolic], plain: Exported | str, exported: Exported) -> None:
    """Stopped where the export without the symbolics, ``plain``, does not end as they declare with ``without``."""
    same_graph = not isinstance(plain, str) and graph.structure(plain.model) == graph.structure(exported.model)
    without = plain if isinstance(plain, str) else "the same graph" if same_graph else "another graph"
    wanted = {symbolic.without for symbolic in declared.values()}
    if without not in wanted:
        what = f"stops with {without}" if isinstance(plain, str) else f"gives {without}"
        text = f"without the symbolic the export {what}; declared is {' or '.join(sorted(wanted))}"
        raise Stopped("check", "NotNeeded" if same_graph else "OtherFailure", text, "case")


def _uncalled(usage: symbolics.Usage) -> str | None:
    """Return an operator whose symbolic was registered for nothing; None where there is none. Of all that one
    function registers, as a package of symbolics does, one has to be called."""
    called: dict[str, bool] = {}
    first: dict[str, str] = {}
    for operator, count in usage.calls.items():
        by = usage.registered_by[operator][-1]
        by = operator if by == symbolics.BY_OPERATOR else by
        called[by] = called.get(by, False) or count > 0
        first.setdefault(by, operator)
    return next((first[by] for by, once in called.items() if not once), None)


def _check_ignored(declared: Mapping[str, Symbolic], usage: symbolics.Usage) -> None:
    """Stopped where a symbolic leaves a tensor input unused without naming it in ``ignores``."""
    for operator, names in usage.ignored.items():
        allowed = declared[operator].ignores if operator in declared else {}
        lost = [name for name in names if name not in allowed]
        if lost:
            which = declared[operator].function if operator in declared else "the symbolic"
            text = f"{which} ignores {', '.join(lost)} of {operator}: the model cannot depend on it"
            raise Stopped("check", "IgnoredInput", text, "case")
