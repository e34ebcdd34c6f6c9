"""A parsed network, evaluated in NumPy: what TensorRT's parser made of a model, without TensorRT's kernels.

A layer computes in float64 what it is given, and each tensor is rounded to its own dtype: FLOAT to the one that is
asked for. A tensor is computed once in the innermost loop that it changes in; a condition computes the branch that it
takes alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import summarize
from conformance.runtimes.tensorrt.network import attending, pointwise, reshaping, sampling, windows
from conformance.runtimes.tensorrt.network.layer_call import BrokenLayer, LayerCall, UncoveredLayer, cast_to, dtype_of
from conformance.runtimes.tensorrt.network.parsed_network import NetworkLayer, ParsedNetwork

KINDS: Mapping[str, Callable[[LayerCall], Any]] = {
    **pointwise.KINDS, **reshaping.KINDS, **windows.KINDS, **sampling.KINDS, **attending.KINDS,
}  # fmt: skip
_ITERATED = ("RECURRENCE", "ITERATOR")
"""Layers whose output is another one in each round of a loop."""
ROUNDS = 100_000
"""The most rounds that a loop may take."""


@dataclass
class _Known:
    """The tensors that are known in a round of a loop, or outside of all."""

    owned: frozenset[int] | None
    """Those that change with the round; None outside of all loops."""
    outer: _Known | None = None
    values: dict[int, Array] = field(default_factory=dict)

    def of(self, tensor: int) -> _Known:
        """Return the scope that a tensor belongs to."""
        scope = self
        while scope.owned is not None and tensor not in scope.owned and scope.outer is not None:
            scope = scope.outer
        return scope

    def get(self, tensor: int) -> Array | None:
        return self.of(tensor).values.get(tensor)

    def put(self, tensor: int, value: Array) -> None:
        self.of(tensor).values[tensor] = value


class NetworkEvaluator:
    """Evaluates a parsed network; ``single`` is the dtype that holds TensorRT's FLOAT."""

    def __init__(self, network: ParsedNetwork, single: Any = np.float32) -> None:
        self._network, self._single = network, single
        self._loops: dict[int, list[NetworkLayer]] = {}
        for layer in network.layers:
            if layer.group is not None:
                self._loops.setdefault(layer.group, []).append(layer)
        self._readers: dict[int, list[NetworkLayer]] = {}
        for layer in network.layers:
            for tensor in layer.inputs:
                if tensor is not None:
                    self._readers.setdefault(tensor, []).append(layer)
        self._owned: dict[int, frozenset[int]] = {}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name. Raises UncoveredLayer and BrokenLayer."""
        with np.errstate(all="ignore"):
            values = self._values(self._network.outputs, self._begun(inputs))
        names = (self._network.tensors[tensor].name for tensor in self._network.outputs)
        return dict(zip(names, values, strict=True))

    def inside(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the tensors outside of loops by name, as far as they can be computed."""
        scope = self._begun(inputs)
        within = {
            tensor for layer in self._network.layers if layer.kind in _ITERATED for tensor in self._changing(layer)
        }
        found: dict[str, Array] = {}
        for layer in self._network.layers:
            for tensor in {*layer.outputs} - within:
                with contextlib.suppress(Exception), np.errstate(all="ignore"):  # one that cannot be is left out
                    found[self._network.tensors[tensor].name] = self._value(tensor, scope)
        return found

    def _begun(self, inputs: Mapping[str, Array]) -> _Known:
        scope = _Known(None)
        for tensor in self._network.inputs:
            about = self._network.tensors[tensor]
            try:
                scope.put(tensor, cast_to(np.asarray(inputs[about.name]), about.dtype, self._single))
            except LookupError as error:
                raise BrokenLayer(f"input {about.name}: {summarize(error)}") from error
        return scope

    def _values(self, wanted: Sequence[int], scope: _Known) -> list[Array]:
        """Return tensors, with all that they need computed first. Its depth is that of loops within loops."""
        waiting = [*wanted]
        while waiting:
            tensor = waiting[-1]
            if scope.get(tensor) is not None:
                waiting.pop()
                continue
            layer = self._network.makers[tensor]
            missing = [each for each in self._needs(layer, scope) if scope.get(each) is None]
            if missing:
                waiting += missing
                continue
            self._make(layer, scope)
        return [self._known(tensor, scope) for tensor in wanted]

    def _make(self, layer: NetworkLayer, scope: _Known) -> None:
        """Compute a layer whose inputs are there. Raises UncoveredLayer, for a word of another version of TensorRT
        too, and BrokenLayer."""
        try:
            for made, value in zip(layer.outputs, self._compute(layer, scope), strict=True):
                scope.put(made, cast_to(value, self._network.tensors[made].dtype, self._single))
        except (UncoveredLayer, BrokenLayer):
            raise
        except KeyError as error:
            raise UncoveredLayer(layer, f"nothing is known of {error.args[0]}") from error
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise BrokenLayer(f"{layer}: {summarize(error)}") from error

    @staticmethod
    def _known(tensor: int, scope: _Known) -> Array:
        value = scope.get(tensor)
        assert value is not None
        return value

    def _value(self, tensor: int | None, scope: _Known) -> Array:
        assert tensor is not None
        return self._values([tensor], scope)[0]

    def _needs(self, layer: NetworkLayer, scope: _Known) -> Iterable[int]:
        """List what has to be there before a layer is computed; of loops and conditions what is not to be asked
        within."""
        if layer.kind == "LOOP_OUTPUT":
            return self._before_loop(layer)
        if layer.kind == "CONDITIONAL_OUTPUT":
            return self._conditions(layer)
        return [tensor for tensor in layer.inputs if tensor is not None]

    def _conditions(self, layer: NetworkLayer) -> list[int]:
        return [
            tensor
            for other in self._of_group(layer, "CONDITION")
            for tensor in other.inputs[:1]
            if tensor is not None
        ]

    def _of_group(self, layer: NetworkLayer, *kinds: str) -> list[NetworkLayer]:
        assert layer.group is not None
        return [other for other in self._loops[layer.group] if other.kind in kinds]

    def _compute(self, layer: NetworkLayer, scope: _Known) -> Sequence[Any]:
        if layer.kind == "LOOP_OUTPUT":
            self._run_loop(layer, scope)
            return [self._known(tensor, scope) for tensor in layer.outputs]
        if layer.kind == "CONDITIONAL_OUTPUT":
            (condition,) = self._conditions(layer)
            taken = layer.inputs[0 if self._known(condition, scope).reshape(-1)[0] else 1]
            return [self._value(taken, scope)]
        if layer.kind == "CONDITIONAL_INPUT":
            return [self._value(layer.inputs[0], scope)]
        arrays = tuple(None if tensor is None else self._known(tensor, scope) for tensor in layer.inputs)
        call = LayerCall(layer, arrays, tuple(self._network.tensors[tensor] for tensor in layer.outputs))
        if layer.kind not in KINDS:
            raise UncoveredLayer(layer)
        made = KINDS[layer.kind](call)
        return made if isinstance(made, tuple) else (made,)

    # loops

    def _changing(self, layer: NetworkLayer) -> frozenset[int]:
        """Return the tensors that change with the round of a loop: what its recurrences and iterators lead to."""
        assert layer.group is not None
        if layer.group not in self._owned:
            reached: set[int] = set()
            waiting = [tensor for each in self._of_group(layer, *_ITERATED) for tensor in each.outputs]
            while waiting:
                tensor = waiting.pop()
                if tensor in reached:
                    continue
                reached.add(tensor)
                for reader in self._readers.get(tensor, []):
                    if reader.group != layer.group or reader.kind not in ("LOOP_OUTPUT", *_ITERATED):
                        waiting += reader.outputs
            self._owned[layer.group] = frozenset(reached)
        return self._owned[layer.group]

    def _before_loop(self, layer: NetworkLayer) -> list[int]:
        """List what a loop starts with: initial values, what is iterated over, the number of rounds."""
        changing = self._changing(layer)
        firsts = [each.inputs[0] for each in self._of_group(layer, *_ITERATED, "TRIP_LIMIT")]
        lengths = [tensor for each in self._of_group(layer, "LOOP_OUTPUT") for tensor in each.inputs[1:2]]
        return [tensor for tensor in (*firsts, *lengths) if tensor is not None and tensor not in changing]

    def _run_loop(self, layer: NetworkLayer, scope: _Known) -> None:
        changing = self._changing(layer)
        recurrences, iterators = self._of_group(layer, "RECURRENCE"), self._of_group(layer, "ITERATOR")
        outputs = self._of_group(layer, "LOOP_OUTPUT")
        state = [self._value(each.inputs[0], scope) for each in recurrences]
        rows: dict[int, list[Array]] = {each.outputs[0]: [] for each in outputs}
        for count in range(ROUNDS):
            round_ = _Known(changing, scope)
            for each, value in zip(recurrences, state, strict=True):
                about = self._network.tensors[each.outputs[0]]
                round_.put(each.outputs[0], cast_to(value, about.dtype, self._single))
            if not self._goes_on(layer, round_, count):
                break
            for each in iterators:
                round_.put(each.outputs[0], self._row(each, scope, count))
            for each in outputs:
                if each.says["kind"] != "LAST_VALUE":
                    rows[each.outputs[0]].append(self._value(each.inputs[0], round_))
            state = [self._value(each.inputs[1], round_) for each in recurrences]
        else:
            raise UncoveredLayer(layer, f"more than {ROUNDS:,} rounds")
        for each in outputs:
            if each.says["kind"] == "LAST_VALUE":  # of a recurrence, whose value after the last round this is
                scope.put(each.outputs[0], self._value(each.inputs[0], round_))
            else:
                scope.put(each.outputs[0], self._joined(each, rows[each.outputs[0]]))

    def _goes_on(self, layer: NetworkLayer, round_: _Known, count: int) -> bool:
        limits = self._of_group(layer, "TRIP_LIMIT")
        return all(
            count < int(value.reshape(-1)[0]) if limit.says["kind"] == "COUNT" else bool(value.reshape(-1)[0])
            for limit in limits
            for value in [self._value(limit.inputs[0], round_)]
        )

    def _row(self, iterator: NetworkLayer, scope: _Known, count: int) -> Array:
        whole, axis = self._value(iterator.inputs[0], scope), iterator.says["axis"]
        return np.asarray(
            np.take(whole, whole.shape[axis] - 1 - count if iterator.says["reverse"] else count, axis=axis)
        )

    def _joined(self, output: NetworkLayer, rows: list[Array]) -> Array:
        """Return the values of all rounds along a new axis, the last first where they are reversed."""
        about, axis = self._network.tensors[output.outputs[0]], output.says["axis"]
        if not rows:
            shape = [max(size, 0) for size in about.shape or (0,)]
            shape[axis] = 0
            return np.zeros(shape, dtype_of(about.dtype, self._single))
        return np.stack(rows[::-1] if output.says["kind"] == "REVERSE" else rows, axis=axis)
