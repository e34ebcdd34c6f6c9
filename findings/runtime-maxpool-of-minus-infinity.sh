#!/bin/sh
# MaxPool over minus infinity in ONNX Runtime gives the lowest finite float, so that a masked region is no longer
# masked; Max gives minus infinity.
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
<ir_version: 9, opset_import: ["" : 18]>
net (float[1, 1, 4] x) => (float[1, 1, 2] y)
{ y = MaxPool <kernel_shape = [2], strides = [2]> (x) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([[[-np.inf, -np.inf, 1, -np.inf]]], np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
(evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: [-inf 1]")
print(f"seen: onnxruntime {runtime.ravel()}, onnx's evaluator {evaluator.ravel()}")
if np.isneginf(runtime.flat[0]) or not np.isneginf(evaluator.flat[0]):
    raise SystemExit("this has changed")
PYTHON
