"""Find the exporter's own pass that makes a right graph wrong: a rule or a pass of dynamo's optimizer (onnxscript),
or what onnxsim or onnxslim does after it.

The model is exported again with passes left out, as ``diagnose.nodes.guilty_pass`` loads a model with passes of ONNX
Runtime switched off: those without which the model is right are named.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from conformance.diagnose.operators.captured_program import Unable
from conformance.diagnose.operators.instruments import part_of, wrapped
from conformance.diagnose.search import OutOfTime, part, require_time
from conformance.process.errors import noting

SECONDS = 30.0
"""How long passes are left out and tried."""
SIMPLIFIERS = {"onnxsim": "simplify", "onnxslim": "slim"}
"""The packages that simplify models, with the function that does so."""
_NEEDED = {"PassManager", "Sequential", "RewritePass", "InlinePass", "RemoveUnusedNodesPass"}
"""Passes that consist of others, or without which others do not work."""


def guilty(right: Callable[[], bool]) -> list[str]:
    """The names of the passes without which ``right`` holds, which exports and looks at what comes out: one, or the
    smallest set; empty where none could be named, or time runs out."""
    deadline = time.monotonic() + SECONDS
    try:
        fired: dict[str, None] = {}
        with _watched(lambda name: fired.setdefault(name), ()):
            if right():
                return []  # the failure does not repeat

        def heals(names: Collection[str]) -> bool:
            require_time(deadline)
            with _watched(lambda name: None, names):
                return right()

        # Passes that only prepare the graph for the wrong one heal too, and come before it.
        healing = next((name for name in reversed(fired) if heals([name])), None)
        if healing is not None:
            return [healing]
        return (part([*fired], heals) if fired else None) or []
    except (OutOfTime, Unable):
        return []


def name_of_rule(rule: Any) -> str:
    """Return what a rule is called, or, of one without a name, which function of which file makes its nodes."""
    if getattr(rule, "name", None):
        return str(rule.name)
    function = inspect.unwrap(getattr(getattr(rule, "_replacement_pattern", None), "_function", rule))
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return str(rule)
    file = code.co_filename.rpartition(f"site-packages{os.sep}")[2]
    return f"{code.co_qualname} at {file}:{code.co_firstlineno}"


@contextlib.contextmanager
def _watched(fires: Callable[[str], object], skipped: Collection[str]) -> Iterator[None]:
    """Inside the block ``fires`` gets the names of the passes that change a model, and those of ``skipped`` change
    none. Raises Unable where this onnxscript works in another way."""
    rule = part_of("onnxscript.rewriter", "RewriteRule")
    base = part_of("onnx_ir.passes", "PassBase")
    result = part_of("onnx_ir.passes", "PassResult")

    def rewritten(original: Any, self: object, *arguments: object, **options: object) -> object:
        name = name_of_rule(self)
        if name in skipped:
            return None
        with noting(lambda _: fires(name)):
            done = original(self, *arguments, **options)
        if done is not None:
            fires(name)
        return done

    def passed(original: Any, self: Any, model: object) -> object:
        name = type(self).__name__
        if name in skipped and self.in_place:
            return result(getattr(model, "model", model), modified=False)
        with noting(lambda _: fires(name) if self.in_place and name not in _NEEDED else None):
            done = original(self, model)
        if done.modified and self.in_place and name not in _NEEDED:
            fires(name)
        return done

    def simplified(name: str, original: Any, model: object, *arguments: object, **options: object) -> object:
        if name in skipped:
            return (model, True) if name == "onnxsim" else model
        fires(name)
        return original(model, *arguments, **options)

    with contextlib.ExitStack() as stack:
        stack.enter_context(wrapped(rule, "try_rewrite", rewritten))
        stack.enter_context(wrapped(base, "__call__", passed))
        for name in SIMPLIFIERS.keys() & sys.modules.keys():
            around = functools.partial(simplified, name)
            stack.enter_context(wrapped(sys.modules[name], SIMPLIFIERS[name], around))
        yield
