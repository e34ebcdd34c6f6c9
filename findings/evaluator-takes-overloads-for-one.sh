#!/bin/sh
# Two functions of one name that differ by their overload: ONNX's evaluator computes the last for both, ONNX Runtime each.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx.reference import ReferenceEvaluator

model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 17, "a" : 1]>
net (float[1] x) => (float[1] y) { t = a.F(x)  y = a.F:two(t) }
<domain: "a", opset_import: ["" : 17]> F (p) => (q) { q = Neg(p) }
<domain: "a", overload: "two", opset_import: ["" : 17]> F (p) => (q) { q = Exp(p) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([1], np.float32)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
(seen,), (runtime,) = ReferenceEvaluator(model).run(None, {"x": x}), session.run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {np.exp(-x)}, as ONNX Runtime gives: {runtime}")
print(f"seen: {seen}")
if np.allclose(seen, np.exp(-x)) or not np.allclose(runtime, np.exp(-x)):
    raise SystemExit("this has changed")
PYTHON
