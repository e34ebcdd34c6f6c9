"""Convert the models of these cases: weights to blocks of 4 bits, or everything to bfloat16."""

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

FLOAT, BFLOAT16 = TensorProto.FLOAT, TensorProto.BFLOAT16


def int4(file, batches):
    """Weights of MatMul in blocks of 16 values of 4 bits, as ONNX Runtime's quantizer makes them."""
    quantizer = MatMulNBitsQuantizer(onnx.load(file), block_size=16, is_symmetric=True)
    quantizer.process()
    return quantizer.model.model


def bf16(file, batches):
    """All that was float32 in bfloat16, between casts of the inputs and outputs."""
    model = onnx.load(file)
    graph = model.graph
    del graph.value_info[:]
    for tensor in graph.initializer:
        _narrow(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _narrow(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i == FLOAT:
                attribute.i = BFLOAT16
    given = {value.name for value in graph.input if value.type.tensor_type.elem_type == FLOAT}
    made = {value.name for value in graph.output if value.type.tensor_type.elem_type == FLOAT}
    for node in graph.node:
        node.input[:] = [f"{name}_bf16" if name in given | made else name for name in node.input]
        node.output[:] = [f"{name}_bf16" if name in made else name for name in node.output]
    first = [helper.make_node("Cast", [name], [f"{name}_bf16"], to=BFLOAT16) for name in sorted(given)]
    last = [helper.make_node("Cast", [f"{name}_bf16"], [name], to=FLOAT) for name in sorted(made)]
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def _narrow(tensor):
    if tensor.data_type == FLOAT:
        values = numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16)
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(values), tensor.name))
