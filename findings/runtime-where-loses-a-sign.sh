#!/bin/sh
# Where copies what it chooses; in ONNX Runtime a -0.0 that is chosen from the second input comes out as 0.0 and its
# reciprocal changes from minus infinity to infinity.
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
net (bool[2] c, float[2] a, float[2] b) => (float[2] y)
{ w = Where(c, a, b) y = Reciprocal(w) }
""")
onnx.checker.check_model(model, full_check=True)
feeds = {"c": np.array([True, False]), "a": np.array([-0.0, 1], np.float32), "b": np.array([1, -0.0], np.float32)}
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
with np.errstate(divide="ignore"):
    (evaluator,) = ReferenceEvaluator(model).run(None, feeds)
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: [-inf -inf], since Where copies what it chooses")
print(f"seen: onnxruntime {runtime}, onnx's evaluator {evaluator}")
if np.isneginf(runtime).all() or not np.isneginf(evaluator).all():
    raise SystemExit("this has changed")
PYTHON
