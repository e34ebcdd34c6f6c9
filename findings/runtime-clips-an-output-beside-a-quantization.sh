#!/bin/sh
# An output, and behind a Transpose of it QuantizeLinear and DequantizeLinear: at its default level ONNX Runtime moves
# these two up past the output itself, which is then rounded and clipped to their range, 12.7 in place of 100.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[2, 3] x) => (float[2, 3] y, float[3, 2] w)
<float s = {0.1}, int8 z = {0}>
{ y = Relu(x) t = Transpose <perm = [1, 0]> (y) q = QuantizeLinear(t, s, z) w = DequantizeLinear(q, s, z) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([[0.04, 1, 100], [3, 50, 6]], np.float32)
levels, found = onnxruntime.GraphOptimizationLevel, {}
for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_BASIC, levels.ORT_ENABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    found[level.name], _ = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: y is {x.ravel().tolist()} at every level; w alone is rounded")
for name, value in found.items():
    print(f"seen: {name}: y is {value.ravel().round(2).tolist()}")
if not np.array_equal(found["ORT_DISABLE_ALL"], x) or np.array_equal(found["ORT_ENABLE_ALL"], x):
    raise SystemExit("this has changed")
PYTHON
