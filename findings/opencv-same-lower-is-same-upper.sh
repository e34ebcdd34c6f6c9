#!/bin/sh
# auto_pad = SAME_LOWER puts the odd value of padding in front; OpenCV puts it behind in a Conv, as for SAME_UPPER.
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
<ir_version: 9, opset_import: ["" : 18]>
net (float[1, 1, 1, 5] x) => (float[1, 1, 1, 5] y)
<float[1, 1, 1, 2] w = {1, 10}>
{ y = Conv <auto_pad = "SAME_LOWER"> (x, w) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 1, 5)
other = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
other.setInput(x)
opencv = other.forward()
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
print(f"onnxruntime {onnxruntime.__version__}, opencv {cv2.__version__}")
print("expected: [10 21 32 43 54], one value of padding in front")
print(f"seen: onnxruntime {runtime.ravel()}, opencv {np.ravel(opencv)}")
if runtime.flat[0] != 10 or np.ravel(opencv)[0] == 10:
    raise SystemExit("this has changed")
PYTHON
