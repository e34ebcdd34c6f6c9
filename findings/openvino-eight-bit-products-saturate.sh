#!/bin/sh
# OpenVINO computes products between Q and DQ in 8 bits: on x86 processors without VNNI two products are added in 16
# bits, where they saturate, so that a sound file gives half of what it means. LP_TRANSFORMS_MODE=NO leaves it in float32.
set -eu
grep -q -E 'avx512_vnni|avx_vnni' /proc/cpuinfo && { echo "nothing is said of processors with VNNI"; exit 3; }
grep -q avx2 /proc/cpuinfo || { echo "nothing is said of processors without AVX2"; exit 3; }
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
from onnx import numpy_helper

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[n, 64] x) => (float[n, 8] y)
<float step = {0.01}, uint8 zero = {0}, float scale = {0.01}, int8 none = {0}>
{
    q = QuantizeLinear(x, step, zero)
    d = DequantizeLinear(q, step, zero)
    v = DequantizeLinear(w, scale, none)
    y = MatMul(d, v)
}
""")
weights = np.full((64, 8), 127, np.int8)
model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
onnx.checker.check_model(model, full_check=True)
onnx.save(model, "net.onnx")
x = np.full((2, 64), 2.5, np.float32)
core = openvino.Core()


def run(**options):
    return float(core.compile_model("net.onnx", "CPU", options)([x])[0][0, 0])


means, plain, without = 64 * 2.5 * 1.27, run(), run(LP_TRANSFORMS_MODE="NO")
print(f"openvino {openvino.__version__}")
print(f"expected: {means:.1f}, which is what the file means")
print(f"seen: {plain:.1f}, and {without:.1f} with LP_TRANSFORMS_MODE=NO")
if abs(plain - means) < 1e-3 * means or abs(without - means) > 1e-3 * means:
    raise SystemExit("this has changed")
PYTHON
