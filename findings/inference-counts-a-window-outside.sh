#!/bin/sh
# Pooling with ceil_mode where the last window would begin behind the input: the window is left out by ONNX Runtime
# and onnx's evaluator, and counted by onnx's shape inference, so that its shape is one too large.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx.reference import ReferenceEvaluator

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 19]>
net (float[1, 1, 4] x) => (float[1, 1, n] y) { y = MaxPool <kernel_shape = [1], strides = [2], ceil_mode = 1> (x) }
""")
onnx.checker.check_model(model, full_check=True)
model.graph.output[0].type.tensor_type.ClearField("shape")
(output,) = onnx.shape_inference.infer_shapes(model).graph.output
inferred = [size.dim_value for size in output.type.tensor_type.shape.dim]
x = np.zeros((1, 1, 4), np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
(evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: shape inference says what its evaluator and a runtime give")
print(f"seen: inferred {inferred}, evaluator {list(evaluator.shape)}, onnxruntime {list(runtime.shape)}")
if inferred == list(evaluator.shape) or evaluator.shape != runtime.shape:
    raise SystemExit("this has changed")
PYTHON
