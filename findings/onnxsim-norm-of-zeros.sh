#!/bin/sh
# A row divided by its Euclidean norm: onnxsim writes LpNormalization for it, which gives 0 for a row of zeros where
# the division gives NaN.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxsim==0.8.1 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import onnxsim

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[2, 3] x) => (float[2, 3] y)
<int64[1] last = {-1}>
{ n = ReduceL2 <keepdims = 1> (x, last) y = Div(x, n) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([[0, 0, 0], [3, 0, 4]], np.float32)
simpler, right = onnxsim.simplify(model)


def run(net):
    return onnxruntime.InferenceSession(net.SerializeToString()).run(None, {"x": x})[0]


print(f"onnxsim {onnxsim.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {run(model).tolist()} before and after, since a simplifier changes no values")
print(f"seen: {run(simpler).tolist()}, nodes {[node.op_type for node in simpler.graph.node]}, its own check {right}")
if np.array_equal(run(model), run(simpler), equal_nan=True):
    raise SystemExit("this has changed")
PYTHON
