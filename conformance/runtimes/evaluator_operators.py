"""Operators that ONNX's evaluator lacks, or takes in part, by the words of their specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array

if TYPE_CHECKING:
    from onnx import NodeProto
    from onnx.reference.op_run import OpRun


def lacking_operators() -> list[type[OpRun]]:
    """Return the classes of these operators, as ``onnx.reference.ReferenceEvaluator`` takes them."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops import op_loop, op_non_max_suppression

    class ZipMap(OpRun):
        op_domain = "ai.onnx.ml"

        def _run(self, x: Array, classlabels_int64s: Any = None, classlabels_strings: Any = None) -> tuple[object]:
            keys = [*(classlabels_strings or classlabels_int64s)]
            return ([dict(zip(keys, row, strict=True)) for row in np.atleast_2d(x)],)

    class CategoryMapper(OpRun):
        op_domain = "ai.onnx.ml"

        def _run(self, x: Array, cats_int64s: Any = None, cats_strings: Any = None, default_int64: int | None = None,
                 default_string: str | None = None) -> tuple[Array]:  # fmt: skip
            if x.dtype.kind in "iu":
                return (mapped(x, cats_int64s, cats_strings, default_string or "_Unused", object),)
            return (mapped(x, cats_strings, cats_int64s, -1 if default_int64 is None else default_int64, np.int64),)

    base: Any = op_non_max_suppression.NonMaxSuppression

    class NonMaxSuppression(base):  # which takes thresholds without dims too
        def _run(self, boxes: Array, scores: Array, *thresholds: Array | None, **attributes: object) -> object:
            given = [None if one is None else np.atleast_1d(one) for one in thresholds]
            return super()._run(boxes, scores, *given, **attributes)

    loop: Any = op_loop.Loop

    class Loop(loop):  # which stacks what the body gives of any rank, and goes on where there is no condition
        def _run(self, limit: Array | None, condition: Array | None, *carried: Array, context: Any = None,
                 body: object = None, **more: object) -> tuple[Array, ...]:  # fmt: skip
            names, stacked, count = self.body.input_names, list[list[Array]](), 0
            while (condition is None or condition) and (limit is None or count < limit):
                passed = {
                    names[0]: np.array(count),
                    names[1]: np.array(True),
                    **dict(zip(names[2:], carried, strict=True)),
                }
                condition, *given = self._run_body({**(context or {}), **passed}, **more)
                stacked, carried = [*stacked, given[self.N :]], tuple(given[: self.N])
                count += 1
            if self.K and not stacked:
                raise ValueError("the shape of what no turn of the loop has given is not known")
            return (*carried, *map(np.stack, zip(*stacked, strict=True)))

    return [ZipMap, CategoryMapper, NonMaxSuppression, Loop]


def mapped(x: Array, keys: Sequence[object], values: Sequence[object], otherwise: object, dtype: type) -> Array:
    """Return what stands for each element: the value at the place of its key, or ``otherwise`` for what is no key."""
    values_by_key = dict(zip(keys, values, strict=True))
    return np.array([values_by_key.get(key, otherwise) for key in x.reshape(-1).tolist()], dtype).reshape(x.shape)


_Function = Callable[[Array], Array]

_ACTIVATIONS: dict[str, _Function] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "leakyrelu": lambda x: np.where(x < 0, x * x.dtype.type(0.01), x),
    "thresholdedrelu": lambda x: np.where(x > 1, x, x.dtype.type(0)),
    "hardsigmoid": lambda x: np.clip(x * x.dtype.type(0.2) + x.dtype.type(0.5), 0, 1),
    "elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.logaddexp(x, x.dtype.type(0)),
}
"""By name in small letters, as the specification compares them, with the default parameters of ONNX's operators.
Functions of other parameters are not here: whether a list of them counts all functions, or those that have some, is
read in two ways."""

_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
RECURRENT = frozenset(_DEFAULTS)
"""The operators that are computed here."""


def left_out(node: NodeProto) -> list[str]:
    """Return what a node says that ONNX's evaluator leaves out."""
    said = _attributes(node)
    plain = [name.lower() for name in _DEFAULTS[node.op_type]]
    plain *= 2 if said.get("direction") == "bidirectional" else 1
    names = [str(name).lower() for name in said.get("activations") or plain]
    found = ["activations"] if names != plain else []
    found += [name for name in ("activation_alpha", "activation_beta", "clip", "input_forget") if said.get(name)]
    return found + (["sequence_lens"] if len(node.input) > 4 and node.input[4] else [])


def is_covered(node: NodeProto) -> bool:
    """Return whether ``recurrent_operators`` compute a node."""
    said = _attributes(node)
    odd = said.get("activation_alpha") or said.get("activation_beta")
    names = {str(name).lower() for name in said.get("activations") or ()}
    return not odd and names <= {*_ACTIVATIONS} and not any(one.ref_attr_name for one in node.attribute)


def recurrent_operators() -> list[type[OpRun]]:
    """Return classes of RNN, GRU and LSTM.

    The evaluator leaves ``sequence_lens``, ``clip``, ``input_forget`` and most of ``activations`` of these out, and
    says nothing. Like ``evaluator_kernels``, this is what is right for a file, and no runtime that is judged.

    "Clipping is applied to the input of activations": ONNX Runtime and OpenVINO clip what the gates are made of, and
    not the state of an LSTM's cell before its last function, and so it is read here.
    """
    from onnx.reference.op_run import OpRun

    class Recurrent(OpRun):
        op_domain = ""

        def _run(self, *inputs: Array, **_: object) -> tuple[Array, ...]:
            return _outputs(self, *inputs)

    return [type(name, (Recurrent,), {}) for name in _DEFAULTS]


def _outputs(node: OpRun, x: Array, weight: Array, again: Array, bias: Array | None = None,
              lengths: Array | None = None, hidden: Array | None = None, cell: Array | None = None,
              peepholes: Array | None = None) -> tuple[Array, ...]:  # fmt: skip
    """Return the outputs of a node.

    ``x`` [time, batch, inputs], or [batch, time, inputs] with ``layout`` 1, ``weight`` [directions, gates, inputs],
    ``again`` [directions, gates, hidden]. Raises NotImplementedError for what is not covered (parameters of
    activations), ValueError for lengths that are none of the sequence.
    """
    kind, size, said = node.op_type, again.shape[-1], _attributes(node.onnx_node)
    names = [str(name).lower() for name in said.get("activations") or _DEFAULTS[kind] * weight.shape[0]]
    if not is_covered(node.onnx_node) or len(names) != len(_DEFAULTS[kind]) * weight.shape[0]:
        raise NotImplementedError(f"{kind} with activations {', '.join(names)} or their parameters")
    batch_first = bool(said.get("layout"))
    if batch_first:
        x = np.swapaxes(x, 0, 1)
        hidden, cell = (None if one is None else np.swapaxes(one, 0, 1) for one in (hidden, cell))
    time, batch = x.shape[:2]
    lengths = np.full(batch, time) if lengths is None else lengths
    if lengths.min(initial=1) < 1 or lengths.max(initial=1) > time:
        raise ValueError(f"sequence_lens {lengths.tolist()} of sequences of {time}")
    states = np.zeros((weight.shape[0], batch, size), x.dtype)
    given = [states if one is None else one for one in (hidden, cell)]
    turns, ends = np.empty((time, weight.shape[0], batch, size), x.dtype), [np.empty_like(states) for _ in given]
    order = np.arange(time)[:, None]
    for place in range(weight.shape[0]):
        backward = place == 1 or said.get("direction") == "reverse"
        # the last ones of a sequence first, and what is behind its end where it is
        at = (
            np.where(order < lengths, lengths - 1 - order, order)
            if backward
            else np.broadcast_to(order, (time, batch))
        )
        count, limit = len(_DEFAULTS[kind]), said.get("clip")
        functions = [_ACTIVATIONS[name] for name in names[place * count : (place + 1) * count]]
        step = _TURNS[kind](
            weight[place], again[place], None if bias is None else bias[place],
            None if peepholes is None else peepholes[place],
            [*(_clipped(one, limit) for one in functions[:2]), *functions[2:]],
            bool(said.get("linear_before_reset")), bool(said.get("input_forget")),
        )  # fmt: skip
        state = [one[place] for one in given]
        for now in range(time):
            going = (now < lengths)[:, None]
            after = step(x[at[now], np.arange(batch)], *state)
            state = [np.where(going, new, old).astype(x.dtype) for new, old in zip(after, state, strict=True)]
            turns[at[now], place, np.arange(batch)] = np.where(going, state[0], 0)
        for end, one in zip(ends, state, strict=True):
            end[place] = one
    outputs = [turns, *(ends if kind == "LSTM" else ends[:1])]
    if batch_first:
        outputs = [turns.transpose(2, 0, 1, 3), *(end.swapaxes(0, 1) for end in outputs[1:])]
    return tuple(outputs[: len(node.onnx_node.output)])


def _attributes(node: NodeProto) -> dict[str, Any]:
    from onnx import helper

    return {one.name: _text(helper.get_attribute_value(one)) for one in node.attribute if not one.ref_attr_name}


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


def _clipped(function: _Function, limit: float | None) -> _Function:
    return function if limit is None else lambda x: function(np.clip(x, -limit, limit))


class _Turn:
    """A turn of one direction: from a row of inputs [batch, inputs] and the states before to the states after."""

    def __init__(self, weight: Array, again: Array, bias: Array | None, peepholes: Array | None,
                 functions: Sequence[_Function], linear: bool, coupled: bool) -> None:  # fmt: skip
        self.weight, self.again, self.functions, self.linear = weight, again, functions, linear
        self.coupled = coupled
        size = again.shape[-1]
        bias = np.zeros(2 * len(weight), weight.dtype) if bias is None else bias
        self.bias, self.bias_again = bias[: len(weight)], bias[len(weight) :]
        peepholes = np.zeros(3 * size, weight.dtype) if peepholes is None else peepholes
        self.peepholes = np.split(peepholes, 3)

    def gates(self, x: Array, hidden: Array) -> Array:
        total: Array = x @ self.weight.T + hidden @ self.again.T + self.bias + self.bias_again
        return total


class _Plain(_Turn):
    def __call__(self, x: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
        return self.functions[0](self.gates(x, hidden)), cell


class _Gated(_Turn):
    def __call__(self, x: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
        sigma, tanh = self.functions
        size = hidden.shape[-1]
        update, reset = np.split(sigma(self.gates(x, hidden)[:, : 2 * size]), 2, -1)
        given, bias = x @ self.weight[2 * size :].T + self.bias[2 * size :], self.bias_again[2 * size :]
        again = self.again[2 * size :].T
        kept = reset * (hidden @ again + bias) if self.linear else (reset * hidden) @ again + bias
        return (1 - update) * tanh(given + kept) + update * hidden, cell


class _Long(_Turn):
    def __call__(self, x: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
        sigma, tanh, last = self.functions
        into, out, forget, new = np.split(self.gates(x, hidden), 4, -1)
        of_into, of_out, of_forget = self.peepholes
        taken = sigma(into + of_into * cell)
        kept = (1 - taken if self.coupled else sigma(forget + of_forget * cell)) * cell + taken * tanh(new)
        return sigma(out + of_out * kept) * last(kept), kept


_TURNS: dict[str, type[_Plain | _Gated | _Long]] = {"RNN": _Plain, "GRU": _Gated, "LSTM": _Long}
