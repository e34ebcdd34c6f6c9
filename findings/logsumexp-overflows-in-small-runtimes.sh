#!/bin/sh
# ReduceLogSumExp exists so that exp does not overflow: tract and OpenCV add up plain exponentials and give infinity
# for 200, ONNX Runtime gives 200.69.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 tract==0.23.9 opencv-python-headless==5.0.0.93 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import tempfile
from importlib.metadata import version

import cv2
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import tract

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[1, 2] x) => (float[1, 1] y)
<int64[1] last = {1}>
{ y = ReduceLogSumExp(x, last) }
""")
onnx.checker.check_model(model, full_check=True)
with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
    file.write(model.SerializeToString())
    file.flush()
    net = tract.onnx().load(file.name)
net.set_input_fact(0, "1,2,f32")
x = np.full((1, 2), 200, np.float32)
(small,) = net.into_model().into_runnable().run([x])
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
other = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
other.setInput(x)
values = [float(np.ravel(value)[0]) for value in (runtime, small.to_numpy(), other.forward())]
print(f"onnxruntime {onnxruntime.__version__}, tract {version('tract')}, opencv {cv2.__version__}")
print("expected: 200 + log(2) = 200.69")
print(f"seen: onnxruntime {values[0]:.2f}, tract {values[1]}, opencv {values[2]}")
if abs(values[0] - 200.69) > 0.01 or np.isfinite(values[1:]).any():
    raise SystemExit("this has changed")
PYTHON
