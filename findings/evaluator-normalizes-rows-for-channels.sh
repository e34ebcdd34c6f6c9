#!/bin/sh
# LRN normalizes each channel by those around it; onnx's evaluator does so for as many channels as the batch has rows,
# and takes the sum of squares of the others for 0. A batch as large as the channels are many comes out right.
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
net (float[n, 4, 1, 1] x) => (float[n, 4, 1, 1] y)
{ y = LRN <size = 1, alpha = 3.0, beta = 1.0> (x) }
""")
onnx.checker.check_model(model, full_check=True)
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
seen = {}
for rows in (1, 4):
    x = np.ones((rows, 4, 1, 1), np.float32)
    (runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
    seen[rows] = np.allclose(runtime, 0.25), np.allclose(evaluator, 0.25)
    print(f"{rows} rows: expected: 1 divided by 1 + 3, four times")
    print(f"seen: onnxruntime {runtime[0].ravel()}, onnx's evaluator {evaluator[0].ravel()}")
if seen != {1: (True, False), 4: (True, True)}:
    raise SystemExit("this has changed")
PYTHON
