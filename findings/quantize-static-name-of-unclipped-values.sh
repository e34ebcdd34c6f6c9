#!/bin/sh
# ONNX Runtime's quantize_static leaves a Clip out whose range the quantization behind it has too, and gives the name of
# the Clip's result to what goes into the Clip: who compares tensors of the two files by name compares other tensors.
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
from onnxruntime.quantization import CalibrationDataReader, quantize_static

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[8, 8] x) => (float[8, 8] y)
<float low = {0.0}, float high = {6.0}>
{
    before = MatMul(x, w)
    clipped = Clip(before, low, high)
    y = MatMul(clipped, w)
}
""")
rng = np.random.default_rng(0)
w = onnx.numpy_helper.from_array(3 * rng.standard_normal((8, 8)).astype(np.float32), "w")
model.graph.initializer.append(w)
onnx.checker.check_model(model, full_check=True)
onnx.save(model, "float.onnx")
x = rng.standard_normal((8, 8)).astype(np.float32)


class Batches(CalibrationDataReader):
    left = iter([{"x": x}])

    def get_next(self):
        return next(self.left, None)


quantize_static("float.onnx", "int8.onnx", Batches())
ranges = {}
for name in ("float.onnx", "int8.onnx"):
    shown = onnx.load(name)
    shown.graph.output.append(onnx.helper.make_tensor_value_info("clipped", onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options)
    values = session.run(["clipped"], {"x": x})[0]
    ranges[name] = (float(values.min()), float(values.max()))
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: the tensor called clipped has values from 0 to 6 in both files")
print("seen: " + "; ".join(f"{name} {low:.1f} to {high:.1f}" for name, (low, high) in ranges.items()))
if ranges["float.onnx"] != (0.0, 6.0) or ranges["int8.onnx"][0] >= 0:
    raise SystemExit("this has changed")
PYTHON
