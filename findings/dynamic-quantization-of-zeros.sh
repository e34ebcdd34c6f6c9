#!/bin/sh
# DynamicQuantizeLinear of zeros alone has a scale of 0 by its formula: ONNX Runtime gives 1, OpenVINO 0 and onnx's
# evaluator 1/255, so that one file has three scales.
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
from onnx.reference import ReferenceEvaluator

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[3] x) => (uint8[3] y, float s, uint8 z)
{ y, s, z = DynamicQuantizeLinear(x) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
x = np.zeros(3, np.float32)
runtime = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[1]
evaluator = ReferenceEvaluator(model).run(None, {"x": x})[1]
vino = compiled([x])[1]
scales = [float(np.asarray(value).ravel()[0]) for value in (runtime, vino, evaluator)]
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: one scale")
print(f"seen: onnxruntime {scales[0]}, openvino {scales[1]}, onnx's evaluator {scales[2]}")
if len(set(scales)) < 3:
    raise SystemExit("this has changed")
PYTHON
