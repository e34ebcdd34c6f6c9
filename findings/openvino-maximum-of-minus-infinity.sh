#!/bin/sh
# ReduceMax over values that are all minus infinity, or over none: OpenVINO gives the lowest finite float, so that a
# test for an all-masked row fails; ONNX Runtime gives minus infinity.
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
<ir_version: 9, opset_import: ["" : 18]>
net (float[n, k] x) => (float[n] y)
<int64[1] last = {1}>
{ y = ReduceMax <keepdims = 0> (x, last) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
x = np.full((1, 3), -np.inf, np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
vino, none = compiled([x])[0].copy(), compiled([x[:, :0]])[0].copy()
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: [-inf], of three times minus infinity and of nothing")
print(f"seen: onnxruntime {runtime}, openvino {vino} and of nothing {none}")
if np.isneginf(vino).any() or not np.isneginf(runtime).all():
    raise SystemExit("this has changed")
PYTHON
