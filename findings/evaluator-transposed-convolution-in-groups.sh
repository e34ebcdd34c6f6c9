#!/bin/sh
# ConvTranspose with two groups of one input channel and two output channels each: onnx's evaluator fails with a
# reshape, ONNX Runtime computes it.
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
net (float[1, 2, 5] x) => (float[1, 4, 7] y)
<float[2, 2, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
{ y = ConvTranspose <group = 2> (x, w) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.ones((1, 2, 5), np.float32)
(value,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: four channels of seven values in both")
try:
    ReferenceEvaluator(model).run(None, {"x": x})
except Exception as error:
    print(f"seen: onnxruntime {value.shape}, onnx's evaluator: {error}")
else:
    raise SystemExit("this has changed")
PYTHON
