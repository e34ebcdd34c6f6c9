#!/bin/sh
# PRelu with a slope of [3] and an input of [2, 3, 3]: ONNX broadcasts from the last dimension; OpenVINO and OpenCV
# take the slopes for channels, as PyTorch does.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 numpy==2.4.6 opencv-python-headless==5.0.0.93 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import cv2
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import openvino

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[2, 3, 3] x) => (float[2, 3, 3] y)
<float[3] slope = {1, 2, 3}>
{ y = PRelu(x, slope) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
x = np.full((2, 3, 3), -1, np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
vino = compiled([x])[0]
other = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
other.setInput(x)
opencv = other.forward()
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}, opencv {cv2.__version__}")
print("expected: [-1 -2 -3] in each row")
print(f"seen: first row onnxruntime {runtime[0, 0]}, openvino {vino[0, 0]}, opencv {opencv[0, 0]}")
if list(runtime[0, 0]) != [-1, -2, -3] or list(vino[0, 0]) == [-1, -2, -3]:
    raise SystemExit("this has changed")
PYTHON
