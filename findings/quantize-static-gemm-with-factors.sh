#!/bin/sh
# Gemm with alpha = 0.5 and beta = 2: quantize_static of ONNX Runtime writes a Q/DQ model in which the bias loses its
# factor of 2, without a warning; a Gemm without factors is quantized rightly.
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
net (float[2, 3] x) => (float[2, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] c = {100, 200}>
{ y = Gemm <alpha = 0.5, beta = 2.0> (x, w, c) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
quantize_static(model, "quantized.onnx", Reader([{"x": x}]), weight_type=QuantType.QInt8)
(whole,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
(small,) = onnxruntime.InferenceSession("quantized.onnx").run(None, {"x": x})
print(f"onnxruntime {onnxruntime.__version__}")
print(f"expected: {whole.ravel()} within a step of 8 bits, about 2")
print(f"seen: {small.ravel().round(1)}")
if np.allclose(whole, small, atol=10):
    raise SystemExit("this has changed")
PYTHON
