#!/bin/sh
# Q/DQ files of opsets 10 to 18, which quantizers write, do not run in onnx's evaluator: it has QuantizeLinear and
# DequantizeLinear from opset 19 alone.
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
<ir_version: 9, opset_import: ["" : 17]>
net (float[2] x) => (float[2] y)
<float s = {0.5}, int8 z = {0}>
{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([0.6, 9], np.float32)
(value,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {value} in both; older opsets of an operator have a kernel where its meaning is the same")
try:
    ReferenceEvaluator(model).run(None, {"x": x})
except Exception as error:
    print(f"seen: onnxruntime {value}, onnx's evaluator: {str(error)[:110]}")
else:
    raise SystemExit("this has changed")
PYTHON
