#!/bin/sh
# Reshape twice, where a 0 in the second shape keeps a dimension of the first one's result: onnxoptimizer leaves the
# first out, so that the 0 keeps a dimension of the input instead.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxoptimizer==0.4.2 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxoptimizer
from onnx.reference import ReferenceEvaluator

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[2, 3, 4] x) => (float[4, 6] y)
<int64[2] first = {4, 6}, int64[2] second = {0, -1}>
{ r = Reshape(x, first) y = Reshape(r, second) }
""")
onnx.checker.check_model(model, full_check=True)
less = onnxoptimizer.optimize(model, ["eliminate_consecutive_idempotent_ops"])
x = np.zeros((2, 3, 4), np.float32)
(whole,) = ReferenceEvaluator(model).run(None, {"x": x})
(changed,) = ReferenceEvaluator(less).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxoptimizer {onnxoptimizer.__version__}")
print(f"expected: shape {whole.shape} before and after")
print(f"seen: shape {changed.shape} after it")
if changed.shape == whole.shape:
    raise SystemExit("this has changed")
PYTHON
