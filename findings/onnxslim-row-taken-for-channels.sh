#!/bin/sh
# A convolution times a row of constants: onnxslim folds the row into the weights as if it were one factor for each
# channel, as soon as the row is as long as there are channels.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxslim==0.1.98 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxslim
from onnx.reference import ReferenceEvaluator

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[1, 1, 5] x) => (float[1, 3, 3] y)
<float[3, 1, 3] w = {1, 1, 1, 1, 1, 1, 1, 1, 1}, float[3] row = {1, 2, 3}>
{ c = Conv(x, w) y = Mul(c, row) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
slim = onnxslim.slim(model)
(whole,) = ReferenceEvaluator(model).run(None, {"x": x})
(less,) = ReferenceEvaluator(slim).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxslim {onnxslim.__version__}")
print(f"expected: each row times 1, 2, 3, before and after: first channel {whole[0, 0]}")
print(f"seen: after onnxslim first channel {less[0, 0]}, nodes {[node.op_type for node in slim.graph.node]}")
if np.array_equal(whole, less):
    raise SystemExit("this has changed")
PYTHON
