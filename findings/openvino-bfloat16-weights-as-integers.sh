#!/bin/sh
# ONNX keeps weights of bfloat16 as bytes or, as helper.make_tensor does, as the bits of each number in int32_data.
# OpenVINO takes these bits for the numbers, so that 1 is 16256.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 numpy==2.4.6 ml_dtypes==0.6.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

values = np.array([1, 2, -3], ml_dtypes.bfloat16)
x = np.ones(3, np.float32)
runtime, vino = [], []
for weights in (numpy_helper.from_array(values, "w"), helper.make_tensor("w", TensorProto.BFLOAT16, [3], values)):
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=1), helper.make_node("Mul", ["x", "wide"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    file = model.SerializeToString()
    runtime.append(onnxruntime.InferenceSession(file).run(None, {"x": x})[0].tolist())
    core = openvino.Core()
    vino.append(core.compile_model(core.read_model(file, b""), "CPU")([x])[0].tolist())
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: 1, 2, -3 times 1, whichever way they are kept")
print(f"seen: as bytes and in int32_data onnxruntime {runtime}, openvino {vino}")
if vino[0] != [1, 2, -3] or vino[1] == [1, 2, -3]:
    raise SystemExit("this has changed")
PYTHON
