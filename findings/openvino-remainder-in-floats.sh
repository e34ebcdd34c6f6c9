#!/bin/sh
# OpenVINO computes Mod of 32-bit integers in float32, so that the remainder of a large one is wrong, and even negative;
# of small ones it is right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 openvino==2026.4.1 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import openvino

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (int32[5] x) => (int32[5] y) <int32 k = {13}> { y = Mod (x, k) }
""")
onnx.checker.check_model(model, full_check=True)
onnx.save(model, "net.onnx")
x = np.array([30, -30, 999999999, 1234567890, 1999999993], np.int32)
right = np.mod(x, 13)
got = openvino.Core().compile_model("net.onnx", "CPU")([x])[0]
print(f"onnx {onnx.__version__}, openvino {openvino.__version__}")
print(f"expected: {x} modulo 13: {right}")
print(f"seen: {got}")
if not np.array_equal(got[:2], right[:2]) or np.array_equal(got[2:], right[2:]):
    raise SystemExit("this has changed")
PYTHON
