#!/bin/sh
# An RNN whose activation is Relu: tract loads it and computes Tanh, as it does without the attribute.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 tract==0.23.9 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import tempfile
from importlib.metadata import version

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import tract

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[1, 1, 1] x) => (float[1, 1, 1, 1] y)
<float[1, 1, 1] w = {1}, float[1, 1, 1] r = {1}>
{ y = RNN <hidden_size = 1, activations = ["Relu"]> (x, w, r) }
""")
onnx.checker.check_model(model, full_check=True)
with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
    file.write(model.SerializeToString())
    file.flush()
    net = tract.onnx().load(file.name)
net.set_input_fact(0, "1,1,1,f32")
x = np.full((1, 1, 1), 2, np.float32)
(small,) = net.into_model().into_runnable().run([x])
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
small = float(small.to_numpy().ravel()[0])
print(f"onnxruntime {onnxruntime.__version__}, tract {version('tract')}")
print("expected: Relu(2) = 2")
print(f"seen: onnxruntime {runtime.ravel()[0]}, tract {small} (tanh(2) is {np.tanh(2):.6f})")
if abs(small - 2) < 0.01 or runtime.ravel()[0] != 2:
    raise SystemExit("this has changed")
PYTHON
