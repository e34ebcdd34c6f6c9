"""How a pass of an optimizer is made wrong: whatever it changes comes out doubled, or off by a quarter."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.plants.plant import Planted, Planting

OPTION = "optimization.disable_specified_optimizers"


def of_onnxruntime(name: str) -> Planting:
    """The outputs of a session are off by a quarter where this pass changes its model: a pass does where the model
    is optimized to another one without it."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        import onnxruntime

        original = onnxruntime.InferenceSession
        known: dict[tuple[Any, ...], bool] = {}

        class InferenceSession(original):  # type: ignore[misc, valid-type]
            def __init__(self, model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> None:
                super().__init__(model, sess_options, *arguments, **options)
                levels = onnxruntime.GraphOptimizationLevel
                level = levels.ORT_ENABLE_ALL if sess_options is None else sess_options.graph_optimization_level
                off = [*(options.get("disabled_optimizers") or []), *_switched_off(sess_options)]
                data = model if isinstance(model, bytes) else Path(model).read_bytes()
                key = data, str(level), *sorted(off)
                if key not in known:
                    known[key] = (
                        level != levels.ORT_DISABLE_ALL
                        and name not in off
                        and (optimized(original, data, level, off) != optimized(original, data, level, [*off, name]))
                    )
                self.wrong = known[key]
                planted.times += self.wrong

            def run(self, names: Any, inputs: Any, *arguments: Any) -> Any:
                outputs = super().run(names, inputs, *arguments)
                return [output * np.float32(1.25) for output in outputs] if self.wrong else outputs

        with mock.patch.object(onnxruntime, "InferenceSession", InferenceSession):
            yield

    return planting


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
