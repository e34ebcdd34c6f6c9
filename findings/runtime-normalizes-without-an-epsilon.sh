#!/bin/sh
# The function by which ONNX defines MeanVarianceNormalization adds 1e-9 to the deviation before it divides, so that a
# constant channel is 0; ONNX Runtime's kernel adds nothing, as the formula in the operator's text, and gives NaN.
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
<ir_version: 9, opset_import: ["" : 9]>
net (float[1, 2, 1, 2] x) => (float[1, 2, 1, 2] y) { y = MeanVarianceNormalization(x) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([[[[1, 1]], [[3, 5]]]], np.float32)
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
(evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
vino = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])[0]
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: [0 0 -1 1], as of one channel of twice 1, and another of 3 and 5")
print(f"seen: onnxruntime {runtime.ravel()}, onnx's evaluator {evaluator.ravel()}, openvino {vino.ravel()}")
if not np.isnan(runtime[0, 0]).all() or np.isnan(evaluator).any() or np.isnan(vino).any():
    raise SystemExit("this has changed")
PYTHON
