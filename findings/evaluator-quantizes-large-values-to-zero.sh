#!/bin/sh
# QuantizeLinear saturates; onnx's evaluator gives the lowest value instead of the highest for what does not fit in
# 32 bits after the division, and for infinity.
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
<ir_version: 10, opset_import: ["" : 21]>
net (float[4] x) => (uint8[4] y)
<float s = {2}, uint8 z = {3}>
{ y = QuantizeLinear(x, s, z) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([1000, 1e9, 1e10, np.inf], np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
(evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: 255 for each of 1000, 1e9, 1e10 and infinity")
print(f"seen: onnxruntime {runtime}, onnx's evaluator {evaluator}")
if list(runtime) != [255] * 4 or list(evaluator) == [255] * 4:
    raise SystemExit("this has changed")
PYTHON
