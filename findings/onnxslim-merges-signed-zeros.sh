#!/bin/sh
# Two initializers of 0.0 and of -0.0: onnxslim keeps one of them for both, so that a factor of -0.0 becomes 0.0 and
# what is divided by it changes from minus infinity to infinity.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxslim==0.1.98 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import onnxslim

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[1] x) => (float[1] p, float[1] n)
<float[1] zero = {0}, float[1] minus = {-0.0}>
{ a = Mul(x, zero) b = Mul(x, minus) p = Reciprocal(a) n = Reciprocal(b) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.ones(1, np.float32)
slim = onnxslim.slim(onnx.load_from_string(model.SerializeToString()))


def run(net):
    return [float(value[0]) for value in onnxruntime.InferenceSession(net.SerializeToString()).run(None, {"x": x})]


print(f"onnxslim {onnxslim.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {run(model)} before and after")
print(f"seen: {run(slim)} after, initializers {[weight.name for weight in slim.graph.initializer]}")
if run(model) == run(slim):
    raise SystemExit("this has changed")
PYTHON
