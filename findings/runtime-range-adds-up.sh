#!/bin/sh
# Range of float32 in ONNX Runtime adds the step again and again: after 10,000 steps of 0.1 it is off by 0.1, where
# start plus number times step would be right to seven digits.
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
net (float start, float limit, float step) => (float[n] y)
{ y = Range(start, limit, step) }
""")
onnx.checker.check_model(model, full_check=True)
feeds = {name: np.array(value, np.float32) for name, value in (("start", 0), ("limit", 1000), ("step", 0.1))}
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
(evaluator,) = ReferenceEvaluator(model).run(None, feeds)
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: value 9,999 is 999.9")
print(f"seen: onnxruntime {runtime[9999]}, onnx's evaluator {evaluator[9999]}")
if abs(runtime[9999] - 999.9) < 0.01:
    raise SystemExit("this has changed")
PYTHON
