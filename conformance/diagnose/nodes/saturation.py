"""Find out whether ONNX Runtime's 8-bit kernels saturated: they add up products in 16 bits on x86 processors without
VNNI.

``vpmaddubsw``, which those kernels are made of, adds two products of 8-bit numbers into 16 bits and saturates: 127
times 255, twice, is 64,770, and 32,767 comes out. ONNX Runtime has a switch that makes it take wider kernels
(``session.x64quantprecision``, in ``onnxruntime_session_options_config_keys.h``). That a model comes out right with
the switch, and wrong without it, shows that saturation is the cause; that a processor has no VNNI does not.

The switch has a gap: ONNX Runtime makes uint8 of int8 for those kernels, but not of an operand between whose
QuantizeLinear and DequantizeLinear it has moved a Transpose, and uint8 times int8 saturates. A session that has the
switch is asked about the same model with activations in uint8 from the start, which means the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.case.draw.example import Example
from conformance.diagnose.nodes import other_runtime
from conformance.diagnose.nodes.blame import Inquiry
from conformance.judge.comparer import Comparer
from conformance.process.arrays import Array, same
from conformance.process.disk.onnx_models import on_disk
from conformance.process.errors import or_else
from conformance.results.records.processor import is_of_kind
from conformance.results.records.record import Answer, Witness
from conformance.results.records.record_types import Cause
from conformance.runtimes.onnxgraph.reads import captured, copy_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

SWITCH = {"session.x64quantprecision": "1"}
"""The session option that makes ONNX Runtime take wider kernels."""

UNSIGNED = {"activations": "uint8"}
"""What a record says of a model that was changed by ``unsigned``, as it is where a case sets ``SWITCH`` already."""

VNNI = ("avx512_vnni", "avx_vnni")
"""Instruction sets that add up 8-bit products in 32 bits."""

OPERATORS = {
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear",
}  # fmt: skip
"""A graph with none of these has nothing that 8-bit kernels compute."""


def possible(nodes: Mapping[str, int], instructions: Collection[str]) -> bool:
    """Return whether a model with these nodes can meet saturating kernels on a processor with these instruction
    sets."""
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


def _has_point(node: NodeProto, points: Collection[str]) -> bool:
    return node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(node.input) == 3 and node.input[2] in points


def ask(
    model: Path,
    libraries: Sequence[str],
    config: Mapping[str, str],
    inputs: Mapping[str, Array],
    got: Sequence[Array] | None,
    agrees: Callable[[list[Array]], bool],
) -> Witness:
    """Run the model with ``SWITCH``, or, where the session has the switch already, as ``unsigned`` changes it;
    ``agrees`` decides on the outputs. ``got`` are those of the model as it stands, or None where they are unknown.

    Outputs that the switch does not change prove nothing: ONNX Runtime takes options that it does not know without a
    word.
    """
    from conformance.runtimes.onnxruntime import knows

    has_switch = SWITCH.items() <= config.items()

    def witness(answer: Answer, error: str | None = None) -> Witness:
        return Witness("onnxruntime", answer, error, config=UNSIGNED if has_switch else SWITCH)

    if has_switch:
        import onnx

        changed = unsigned(onnx.load(str(model)))
        if changed is None:
            return witness("abstains")
        with on_disk(changed) as file:
            asked = other_runtime.ask("onnxruntime", file, libraries, inputs, config)
    elif not all(map(knows, SWITCH)):
        return witness("abstains")
    else:
        asked = other_runtime.ask("onnxruntime", model, libraries, inputs, {**config, **SWITCH})
    if asked.outputs is None:
        return witness(asked.answer, asked.error)
    if got is not None and same(asked.outputs, got):
        return witness("same")
    return witness("agrees" if agrees(asked.outputs) else "wrong")


def ask_about(
    inquiry: Inquiry,
    example: Example,
    comparer: Comparer,
    model: Path,
    libraries: Sequence[str],
    config: Mapping[str, str],
) -> Inquiry:
    """Ask what ONNX Runtime, whose answer is wrong, answers with kernels that cannot saturate."""
    session = comparer.session
    assert session is not None
    got = or_else(None, lambda: session.run(example.inputs))
    if got is None:  # only a wrong answer is explained here
        return inquiry

    def agrees(outputs: list[Array]) -> bool:
        return comparer.compare(outputs, example.right("all")).verdict != "failed"

    witness = ask(model, libraries, config, example.inputs, got, agrees)
    return inquiry.plus(witness, details={"cause": cause_shown_by(witness)})


def cause_shown_by(witness: Witness) -> Cause | None:
    """The cause, for the record, that the answer of ``ask`` shows; None where the answer shows no saturation."""
    if witness.answer != "agrees":
        return None
    return {"name": "saturation", "shown_by": dict(witness.config or {}), "lacks": list(VNNI)}
