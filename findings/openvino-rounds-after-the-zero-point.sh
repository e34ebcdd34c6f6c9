#!/bin/sh
# QuantizeLinear rounds ties to even and then adds the zero point; OpenVINO adds it first, so that with an odd zero
# point all ties go the other way.
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
<ir_version: 9, opset_import: ["" : 13]>
net (float[4] x) => (uint8[4] y)
<float s = {2}, uint8 z = {3}>
{ y = QuantizeLinear(x, s, z) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
x = np.array([1, 3, 5, -1], np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
vino = compiled([x])[0]
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: 0.5, 1.5, 2.5, -0.5 to 0, 2, 2, 0, and 3 more: [3 5 5 3]")
print(f"seen: onnxruntime {runtime}, openvino {vino}")
if list(runtime) != [3, 5, 5, 3] or list(vino) == [3, 5, 5, 3]:
    raise SystemExit("this has changed")
PYTHON
