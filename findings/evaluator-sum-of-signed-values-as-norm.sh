#!/bin/sh
# LpNormalization with p = 1 divides by the sum of absolute values; onnx's evaluator divides by the sum of the values
# themselves.
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
net (float[3] x) => (float[3] y)
{ y = LpNormalization <p = 1> (x) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([-1, 2, -3], np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
(evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: -1, 2 and -3 divided by 6: {x / 6}")
print(f"seen: onnxruntime {runtime}, onnx's evaluator {evaluator}")
if not np.allclose(runtime, x / 6) or np.allclose(evaluator, x / 6):
    raise SystemExit("this has changed")
PYTHON
