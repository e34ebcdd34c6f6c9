#!/bin/sh
# The quantizer of ONNX Runtime looks through all nodes and initializers for each of them: a graph of four times as many
# nodes takes about fourteen times as long.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

FEW, MANY = 200, 800


def layers(count, file):
    """That many layers of a product by a weight of its own and a tanh, which is two nodes each."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(size=(16, 16)).astype("f4"), f"w{i}") for i in range(count)]
    nodes = []
    for i in range(count):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"]))
        nodes.append(helper.make_node("Tanh", [f"y{i}"], [f"x{i + 1}"]))
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 16]) for name in ("x0", f"x{count}")]
    graph = helper.make_graph(nodes, "layers", sides[:1], sides[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
    return file


def seconds(count):
    """The least of three, of the CPU."""
    file, took = layers(count, f"{count}.onnx"), []
    for _ in range(3):
        start = time.process_time()
        quantize_dynamic(file, "quantized.onnx")
        took.append(time.process_time() - start)
    return min(took)


seconds(10)
few, many = seconds(FEW), seconds(MANY)
print(f"onnxruntime {onnxruntime.__version__}")
print(f"expected: quantize_dynamic of {MANY} layers takes about 4 times as long as of {FEW}")
print(f"seen: {many / few:.0f} times as long, {many:.1f} s in place of {few:.1f} s")
if many / few < 8:
    raise SystemExit("this has changed")
PYTHON
