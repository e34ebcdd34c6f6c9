#!/bin/sh
# A pool over a row that is padded on one side alone: onnx's shape inference and ONNX Runtime give one value more than
# onnx's own evaluator.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], pads=[0, 1])
graph = helper.make_graph(
    [node], "pool", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 3])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
onnx.checker.check_model(model, full_check=True)
x = np.array([[[1, 2, 3]]], np.float32)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
(runtime,) = session.run(None, {"x": x})
(evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: MaxPool of 3 values, kernel 2, one value of padding behind: (3 + 1 - 2) / 1 + 1 = 3 values")
print(f"seen: onnxruntime {runtime.ravel()}, onnx's evaluator {evaluator.ravel()}")
if runtime.shape[2] != 3 or evaluator.shape[2] != 2:
    raise SystemExit("this has changed")
PYTHON
