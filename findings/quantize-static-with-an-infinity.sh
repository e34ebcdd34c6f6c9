#!/bin/sh
# One infinite value among the calibration inputs: quantize_static of ONNX Runtime writes a scale of infinity for
# that tensor, says nothing, and all outputs of the quantized model are the same.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 sympy==1.14.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static


class Reader(CalibrationDataReader):
    """Hand out the given inputs."""

    def __init__(self, inputs):
        self.left = iter(inputs)

    def get_next(self):
        return next(self.left, None)


model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[2, 2] x) => (float[2, 2] y)
<float[2, 2] w = {1, 2, 3, 4}>
{ y = MatMul(x, w) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([[1, -2], [3, 4]], np.float32)
mask = np.array([[1, -np.inf], [0, 0]], np.float32)
quantize_static(model, "quantized.onnx", Reader([{"x": x}, {"x": mask}]), weight_type=QuantType.QInt8)
stored = onnx.load("quantized.onnx").graph.initializer
weights = {weight.name: onnx.numpy_helper.to_array(weight) for weight in stored}
(small,) = onnxruntime.InferenceSession("quantized.onnx").run(None, {"x": x})
(whole,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
print(f"onnxruntime {onnxruntime.__version__}")
print("expected: a refusal, or a scale from the finite values alone")
print(f"seen: scale {weights['x_scale']}; outputs {small.ravel()}, unquantized {whole.ravel()}")
if np.isfinite(weights["x_scale"]):
    raise SystemExit("this has changed")
PYTHON
