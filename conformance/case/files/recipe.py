"""Find cases that build the same module."""

from __future__ import annotations

from collections.abc import Hashable

from conformance.case.files.declaration import Case


def recipe(case: Case) -> Hashable:
    """All that the module of a case is built from; cases with equal recipes have equal modules."""
    says = case.says
    expression = (says.forward, *says.inputs) if says.module is None else ()
    arguments = repr(sorted(case.arguments.items(), key=str))
    # the inputs matter to weights that are woken: batch norms take their statistics from them
    drawn = says.model_dump_json(include={"inputs", "dims", "where", "draw", "trace"}, fallback=str)
    weights = (says.weights, drawn if says.weights == "awake" else None)
    module = says.module, says.submodule, says.onnx, case.built
    # forward is written out for the call, in the module itself
    call = None if says.call is None else repr((says.call, [*says.inputs], says.clones, says.returns))
    return case.folder, module, expression, arguments, says.prepare, weights, says.seed, says.mode, says.script, call
