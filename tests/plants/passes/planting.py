"""How a pass of an optimizer is made wrong: whatever it changes comes out doubled, or off by a quarter."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.plants.plant import Planted, Planting
from tests.plants.planting import answering

OPTION = "optimization.disable_specified_optimizers"


def off_by_a_quarter(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    return [output * np.float32(1.25) for output in outputs]


def of_onnxruntime(*names: str, by: Callable[[Iterable[bool]], bool] = any) -> Planting:
    """The outputs of a session are off by a quarter where one of these passes changes its model, or where all do: a
    pass does where the model is optimized to another one without it."""
    known: dict[tuple[Any, ...], bool] = {}

    def concerned(original: Any, model: Any, session: Any, options: dict[str, Any]) -> bool:
        from onnxruntime import GraphOptimizationLevel as Levels

        level = Levels.ORT_ENABLE_ALL if session is None else session.graph_optimization_level
        off = [*(options.get("disabled_optimizers") or []), *_switched_off(session)]
        data = model if isinstance(model, bytes) else Path(model).read_bytes()
        key = data, str(level), *sorted(off)
        if key not in known and level != Levels.ORT_DISABLE_ALL:
            with_all = optimized(original, data, level, off)
            known[key] = by(
                name not in off and optimized(original, data, level, [*off, name]) != with_all for name in names
            )
        return known.get(key, False)

    return answering(concerned, off_by_a_quarter)


def _switched_off(options: Any) -> list[str]:
    with contextlib.suppress(Exception):  # raised where the option was not set
        return list(options.get_session_config_entry(OPTION).split(";"))
    return []


def optimized(session: Any, model: Any, level: Any, off: list[str]) -> bytes:
    """What ONNX Runtime makes of a model (its bytes, or its file) at a level, without the passes ``off``."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        session(model, options, providers=["CPUExecutionProvider"], disabled_optimizers=off)
        return (Path(folder) / "optimized.onnx").read_bytes()


def of_rule(name: str) -> Planting:
    """What a rule of onnxscript puts into a graph gives twice what it should."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        import onnx_ir
        from onnxscript import rewriter

        rules = [one for one in vars(rewriter)["_DEFAULT_REWRITE_RULES"] if str(one) == name]

        def doubled(original: Callable[..., Any]) -> Callable[..., Any]:
            def get_replacement(match: Any) -> Any:
                made = original(match)
                if made is None:
                    return None
                planted.note()
                sums = [onnx_ir.Node("", "Add", [value, value]) for value in made.new_outputs]
                made.new_nodes = [*made.new_nodes, *sums]
                made.new_outputs = [node.outputs[0] for node in sums]
                return made

            return get_replacement

        with contextlib.ExitStack() as stack:
            for rule in rules:
                pattern: Any = vars(rule)["_replacement_pattern"]
                wrong = doubled(pattern.get_replacement)
                stack.enter_context(mock.patch.object(pattern, "get_replacement", wrong))
            yield

    return planting


def of_pass(module: str, name: str) -> Planting:
    """A pass of onnxscript that changes a model doubles its outputs as well."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        import importlib

        kind = getattr(importlib.import_module(module), name)
        original = kind.call

        def call(self: Any, model: Any) -> Any:
            result = original(self, model)
            if result.modified:
                planted.note()
                _double(result.model.graph)
            return result

        with mock.patch.object(kind, "call", call):
            yield

    return planting


def _double(graph: Any) -> None:
    import onnx_ir

    for place, value in enumerate(graph.outputs):
        node = onnx_ir.Node("", "Add", [value, value])
        made = node.outputs[0]
        made.type, made.shape = value.type, value.shape
        value.name, made.name = f"{value.name}_single", value.name
        graph.append(node)
        graph.outputs[place] = made


def of_simplifier(operator: str, other: str) -> Planting:
    """onnxsim takes an operator for another."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        import onnxsim

        original = onnxsim.simplify

        def simplify(model: Any, *arguments: Any, **options: Any) -> Any:
            simplified, sound = original(model, *arguments, **options)
            for node in simplified.graph.node:
                if node.op_type == operator:
                    planted.note()
                    node.op_type = other
            return simplified, sound

        with mock.patch.object(sys.modules["onnxsim"], "simplify", simplify):
            yield

    return planting
