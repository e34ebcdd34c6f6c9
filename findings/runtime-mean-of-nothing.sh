#!/bin/sh
# ReduceMean over a dimension of size 0: ONNX Runtime and OpenVINO give 0, where onnx's evaluator gives NaN.
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
net (float[n, k] x) => (float[n] y)
<int64[1] last = {1}>
{ y = ReduceMean <keepdims = 0> (x, last) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
x = np.zeros((2, 0), np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
(evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
vino = compiled([x])[0]
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: NaN, 0 divided by 0")
print(f"seen: onnxruntime {runtime}, onnx's evaluator {evaluator}, openvino {vino}")
if np.isnan(runtime).all() or np.isnan(vino).all() or not np.isnan(evaluator).all():
    raise SystemExit("this has changed")
PYTHON
