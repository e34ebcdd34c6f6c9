#!/bin/sh
# quantize_static of ONNX Runtime, given a float16 model of opset 17, writes QuantizeLinear with float16 scales,
# which exist from opset 19 on, and does not raise the opset as it does for 16-bit integers: nothing loads the file.
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



made = {}
for kind, activation in (("float", QuantType.QInt16), ("float16", QuantType.QInt8)):
    model = onnx.parser.parse_model(f"""
    <ir_version: 9, opset_import: ["" : 17]>
    net ({kind}[2, 2] x, {kind}[2, 2] v) => ({kind}[2, 2] y) {{ y = MatMul(x, v) }}
    """)
    onnx.checker.check_model(model, full_check=True)
    x = np.ones((2, 2), "float32" if kind == "float" else kind)
    quantize_static(
        model, "quantized.onnx", Reader([{"x": x, "v": x}]), activation_type=activation, weight_type=QuantType.QInt8
    )
    opset = onnx.load("quantized.onnx").opset_import[0].version
    try:
        onnxruntime.InferenceSession("quantized.onnx")
        made[kind] = f"opset {opset}, loads"
    except Exception as error:
        made[kind] = f"opset {opset}, {str(error)[:130]}"
print(f"onnxruntime {onnxruntime.__version__}")
print("expected: the opset raised to 21 for both, or a refusal")
print(f"seen: float32 with QInt16: {made['float']}")
print(f"seen: float16 with QInt8: {made['float16']}")
if "loads" in made["float16"] or "loads" not in made["float"]:
    raise SystemExit("this has changed")
PYTHON
