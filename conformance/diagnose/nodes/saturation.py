"""Find out whether 8-bit kernels saturated, which on x86 processors without VNNI add up products in 16 bits, or
whether a setting trades accuracy for speed.

``vpmaddubsw``, which those kernels are made of, adds two products of 8-bit numbers into 16 bits and saturates: 127
times 255, twice, is 64,770, and 32,767 comes out. ONNX Runtime has a switch that makes it take wider kernels
(``session.x64quantprecision``, in ``onnxruntime_session_options_config_keys.h``). That a model comes out right with
the switch, and wrong without it, shows that saturation is the cause; that a processor has no VNNI does not.

The switch has a gap: ONNX Runtime makes uint8 of int8 for those kernels, but not of an operand between whose
QuantizeLinear and DequantizeLinear it has moved a Transpose, and uint8 times int8 saturates. A session that has the
switch is asked about the same model with activations in uint8 from the start, which means the same to the last bit.

It has another: two weights that share a zero point keep such a session from beginning (1.32), so that then one is
asked about the same model with one for each.

OpenVINO has no wider kernels; its switch leaves what stands between Q and DQ in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.case.draw.example import Example
from conformance.diagnose.nodes import loss, other_runtime
from conformance.diagnose.nodes.blame import Inquiry
from conformance.judge.comparer import Comparer
from conformance.process.arrays import Array, same
from conformance.process.disk.onnx_models import on_disk
from conformance.process.errors import attempt, or_else
from conformance.results.records.explanation import Shows
from conformance.results.records.processor import is_of_kind
from conformance.results.records.record import Answer, Witness
from conformance.results.records.record_types import Cause
from conformance.runtimes import registry
from conformance.runtimes.onnxgraph.reads import captured, copy_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

SWITCH = dict(registry.named("onnxruntime").wide)
"""The session option that makes ONNX Runtime take wider kernels."""

UNSIGNED = {"activations": "uint8"}
"""What a record says of a model that was changed by ``unsigned``, as it is where a case sets ``SWITCH`` already."""

OWN_POINTS = {"zero points": "one for each weight"}
"""In a record, the change that ``with_own_points`` made to a model."""

VNNI = ("avx512_vnni", "avx_vnni")
"""Instruction sets that add up 8-bit products in 32 bits."""

OPERATORS = {
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear",
}  # fmt: skip
"""A graph with none of these has nothing that 8-bit kernels compute."""


def possible(runtime: str | None, nodes: Mapping[str, int], instructions: Collection[str]) -> bool:
    """Return whether a runtime can meet saturating kernels in a model with these nodes, on a processor with these
    instruction sets."""
    if not runtime or not registry.named(runtime).wide:
        return False
    eight_bit = any(name.rpartition("::")[2] in OPERATORS for name in nodes)
    return eight_bit and is_of_kind({"lacks": VNNI}, instructions)


def unsigned(model: ModelProto) -> ModelProto | None:
    """The model with uint8 in place of int8 between each QuantizeLinear and the DequantizeLinears that alone read it:
    128 is added to the zero point, so that the same values come out. None where there are none."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    changed = copy_of(model)
    points = {tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT8}
    seen = {value.name for value in model.graph.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in changed.graph.node:
        seen.update(captured(node))
        for name in node.input:
            readers.setdefault(name, []).append(node)
    made: dict[str, TensorProto] = {}
    for node in changed.graph.node:
        if node.op_type != "QuantizeLinear" or node.output[0] in seen:
            continue
        pair = [node, *readers.get(node.output[0], ())]
        if not all(_has_point(member, points) for member in pair):
            continue
        for member in pair:
            name = f"{member.input[2]}/uint8"
            shifted = numpy_helper.to_array(points[member.input[2]]).astype(np.int16) + 128
            made[name] = numpy_helper.from_array(shifted.astype(np.uint8), name)
            member.input[2] = name
    types = [value for value in changed.graph.value_info if value.type.tensor_type.elem_type != TensorProto.INT8]
    del changed.graph.value_info[:]
    changed.graph.value_info.extend(types)
    changed.graph.initializer.extend(made.values())
    return changed if made else None


def with_own_points(model: ModelProto) -> ModelProto | None:
    """The model with a zero point of its own for each weight; None where none shares its."""
    changed = copy_of(model)
    kept = {tensor.name: tensor for tensor in changed.graph.initializer}
    taken: set[str] = set()
    made: list[TensorProto] = []
    for number, node in enumerate(changed.graph.node):
        if node.op_type != "DequantizeLinear" or not _has_point(node, kept) or node.input[0] not in kept:
            continue
        point = node.input[2]
        if point in taken:
            copy = copy_of(kept[point])
            copy.name = node.input[2] = f"{point}/{number}"
            made.append(copy)
        taken.add(point)
    changed.graph.initializer.extend(made)
    return changed if made else None


def _has_point(node: NodeProto, points: Collection[str]) -> bool:
    return node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(node.input) == 3 and node.input[2] in points


def ask(
    runtime: str,
    model: Path,
    libraries: Sequence[str],
    config: Mapping[str, str],
    inputs: Mapping[str, Array],
    got: Sequence[Array] | None,
    agrees: Callable[[list[Array]], bool],
) -> Witness:
    """Run the model with the runtime's switch, or, where a session of ONNX Runtime has it already, as ``unsigned``
    changes it; ``agrees`` decides on the outputs. ``got`` are those of the model as it stands, or None where they are
    unknown, and ``config`` ONNX Runtime's session options.

    Outputs that the switch does not change prove nothing: ONNX Runtime takes options that it does not know without a
    word.
    """
    from conformance.runtimes.onnxruntime import knows

    entry = registry.named(runtime)
    switch = dict(entry.wide)
    has_switch = switch.items() <= config.items()

    def witness(answer: Answer, error: str | None = None) -> Witness:
        return Witness(runtime, answer, error, config=UNSIGNED if has_switch else switch)

    if entry.wide_form:
        asked = other_runtime.ask(entry.wide_form, model, libraries, inputs)
    elif has_switch:
        import onnx

        changed = unsigned(onnx.load(str(model)))
        if changed is None:
            return witness("abstains")
        with on_disk(changed) as file:
            asked = other_runtime.ask(runtime, file, libraries, inputs, config)
    elif not all(map(knows, switch)):
        return witness("abstains")
    else:
        asked = other_runtime.ask(runtime, model, libraries, inputs, {**config, **switch})
        if asked.answer == "stops":
            import onnx

            changed = with_own_points(onnx.load(str(model)))
            if changed is not None:
                switch |= OWN_POINTS
                with on_disk(changed) as file:
                    asked = other_runtime.ask(runtime, file, libraries, inputs, {**config, **dict(entry.wide)})
    if asked.outputs is None:
        return witness(asked.answer, asked.error)
    if got is not None and same(asked.outputs, got):
        return witness("same")
    return witness("agrees" if agrees(asked.outputs) else "wrong")


def ask_about(
    inquiry: Inquiry, runtime: str, example: Example, comparer: Comparer, model: Path, libraries: Sequence[str],
    config: Mapping[str, str],
) -> Inquiry:  # fmt: skip
    """Ask what a runtime whose answer is wrong answers with kernels that cannot saturate."""
    session = comparer.session
    assert session is not None
    got = or_else(None, lambda: session.run(example.inputs))
    if got is None:  # only a wrong answer is explained here
        return inquiry

    def agrees(outputs: list[Array]) -> bool:
        return comparer.compare(outputs, example.right("all")).verdict != "failed"

    witness = ask(runtime, model, libraries, config, example.inputs, got, agrees)
    return inquiry.plus(witness, details={"cause": cause_shown_by(witness)})


def cause_shown_by(witness: Witness) -> Cause | None:
    """The cause, for the record, that the answer of ``ask`` shows; None where the answer shows no saturation."""
    if witness.answer != "agrees":
        return None
    return {"name": "saturation", "shown_by": dict(witness.config or {}), "lacks": list(VNNI)}


# ---- settings that trade accuracy -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TradingOption:
    """A session option with which ONNX Runtime trades accuracy for speed, which is no defect.

    Such options are documented (``onnxruntime_session_options_config_keys.h``; ``docs/ContribOperators.md`` for the
    attributes of com.microsoft), and some trade by default: products with weights of few bits are computed with
    activations of 8 bits. That the same model comes out right with one at its exact value, and wrong without it,
    shows that it is the cause. They are tried before a pass of the optimizer or a kernel is named.
    """

    key: str
    exact: str
    """Its value with which nothing is traded."""
    by_default: frozenset[str] | None = None
    """The operators about which it is, where it trades unless told not to; None where it has to be asked for."""


OPTIONS = (
    TradingOption("session.qdq_matmulnbits_accuracy_level", "1", frozenset({"DequantizeLinear", "MatMul"})),
    TradingOption("mlas.qnbit.force_fp32", "1", frozenset({"MatMulNBits"})),
    TradingOption("optimization.enable_gelu_approximation", "0"),
    TradingOption("session.set_denormal_as_zero", "0"),
    TradingOption("mlas.enable_gemm_fastmath_arm64_bfloat16", "0"),
)
"""In the order in which they are tried. The first, 4 by default, is about ``DequantizeLinear`` and ``MatMul`` that
become one ``MatMulNBits``, the second about that operator, whatever ``accuracy_level`` the file says (ONNX Runtime
1.32)."""


def ask_settings(
    inquiry: Inquiry, example: Example, comparer: Comparer, model: Path, libraries: Sequence[str],
    config: Mapping[str, str], operators: Collection[str],
) -> Inquiry | None:  # fmt: skip
    """Return the inquiry with the setting that makes the outputs of an example right; None where none does, or none
    is known to this release. ``config`` are the options of the session that failed."""
    session = comparer.session
    if session is None:
        return None
    for key, changed in _candidates(config, {name.rpartition("::")[2] for name in operators}):
        asked = other_runtime.ask("onnxruntime", model, libraries, example.inputs, changed)
        got = attempt(partial(session.run, example.inputs))
        if asked.outputs is None or isinstance(got, Exception) or same(asked.outputs, got):
            continue
        if comparer.compare(asked.outputs, example.right("all")).verdict != "failed":
            healing = {key: changed[key]}
            costs = loss.sqnr(got, asked.outputs)
            cause: Cause = {"name": "setting", "shown_by": {**healing}, "lacks": [], "costs": costs}
            witness = Witness("onnxruntime", "agrees", config=healing)
            return inquiry.plus(witness, Shows("setting"), details={"cause": cause})
    return None


def _candidates(config: Mapping[str, str], operators: Collection[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the options to try, each with the key that is another: the exact values of those with which the case
    trades, and of those that trade by default."""
    from conformance.runtimes.onnxruntime import knows

    for option in OPTIONS:
        trades = option.by_default is not None and option.by_default <= {*operators} and knows(option.key)
        if config.get(option.key, option.exact if not trades else None) != option.exact:
            yield option.key, {**config, option.key: option.exact}
