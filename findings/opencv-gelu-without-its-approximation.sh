#!/bin/sh
# Gelu with approximate = tanh differs from the exact one by up to 4e-4; OpenCV loads the attribute and computes the
# exact form.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 opencv-python-headless==5.0.0.93 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import cv2
import numpy as np
import onnx
import onnx.parser
import onnxruntime

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 20]>
net (float[1, 3] x) => (float[1, 3] y)
{ y = Gelu <approximate = "tanh"> (x) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([[-3, -1, 2]], np.float32)
other = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
other.setInput(x)
opencv = other.forward()
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
print(f"onnxruntime {onnxruntime.__version__}, opencv {cv2.__version__}")
exact = -0.00404969
print("expected: -0.003637 at -3 by the form with tanh")
print(f"seen: onnxruntime {runtime[0, 0]:.6f}, opencv {opencv[0, 0]:.6f} (exact {exact:.6f})")
if abs(runtime[0, 0] + 0.003637) > 1e-5 or abs(opencv[0, 0] - exact) > 1e-5:
    raise SystemExit("this has changed")
PYTHON
