#!/bin/sh
# Celu is alpha * (exp(x / alpha) - 1) below 0; tract leaves the outer alpha out, so that with alpha = 2 all negative
# values are half of what they should be.
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
net (float[3] x) => (float[3] y)
{ y = Celu <alpha = 2.0> (x) }
""")
onnx.checker.check_model(model, full_check=True)
with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
    file.write(model.SerializeToString())
    file.flush()
    net = tract.onnx().load(file.name)
net.set_input_fact(0, "3,f32")
x = np.array([-2, -1, 1], np.float32)
(small,) = net.into_model().into_runnable().run([x])
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
print(f"onnxruntime {onnxruntime.__version__}, tract {version('tract')}")
print(f"expected: {np.maximum(x, 0) + np.minimum(0, 2 * np.expm1(x / 2))}")
print(f"seen: onnxruntime {runtime}, tract {small.to_numpy()}")
if np.allclose(runtime, small.to_numpy()):
    raise SystemExit("this has changed")
PYTHON
