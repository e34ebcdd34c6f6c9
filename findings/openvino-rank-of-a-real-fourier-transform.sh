#!/bin/sh
# DFT of a real signal [1, 5, 1], one side: [1, 3, 2] in ONNX and ONNX Runtime; OpenVINO keeps the dimension of the
# real part and returns [1, 3, 1, 2].
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import openvino

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[1, 5, 1] x) => (float[1, 3, 2] y)
{ y = DFT <axis = 1, onesided = 1> (x) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
x = np.arange(5, dtype=np.float32).reshape(1, 5, 1)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
vino = compiled([x])[0]
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: shape (1, 3, 2), as the model declares it")
same = np.allclose(runtime.ravel(), vino.ravel(), atol=1e-5)
print(f"seen: onnxruntime {runtime.shape}, openvino {vino.shape}, the same values {same}")
if vino.shape == (1, 3, 2):
    raise SystemExit("this has changed")
PYTHON
