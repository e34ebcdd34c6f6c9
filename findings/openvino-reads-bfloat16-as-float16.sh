#!/bin/sh
# OpenVINO's interface for Python copies an array of bfloat16 by its values into a buffer of float16, whose bits the
# network then reads as bfloat16: 2 * 1 is not 2. With share_inputs=True the bits are copied.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 openvino==2026.4.1 numpy==2.4.6 ml_dtypes==0.6.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (bfloat16[n] x) => (float[n] y)
{ wide = Cast <to = 1> (x) y = Add(wide, wide) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
x = np.array([1, -3, 20], ml_dtypes.bfloat16)
copied = compiled([x], share_inputs=False)[0].copy()
shared = compiled([x], share_inputs=True)[0].copy()
print(f"openvino {openvino.__version__}")
print(f"expected: the doubles of {x.tolist()}, whether the input is copied or shared")
print(f"seen: copied {copied.tolist()}, shared {shared.tolist()}")
if copied.tolist() == [2, -6, 40] or shared.tolist() != [2, -6, 40]:
    raise SystemExit("this has changed")
PYTHON
