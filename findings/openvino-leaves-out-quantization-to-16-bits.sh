#!/bin/sh
# QuantizeLinear to 16 bits rounds, and clips what is out of its range; OpenVINO takes such a pair with its
# DequantizeLinear out of the graph, so that negative values stay and large ones are not cut off.
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

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[n] x) => (float[n] y)
<float two = {2}, float step = {0.0001}, %s zero = {0}>
{
    scaled = Mul(x, two)
    q = QuantizeLinear(scaled, step, zero)
    d = DequantizeLinear(q, step, zero)
    y = Mul(d, two)
}
"""
x = np.array([-1.5, 0.1234567, 100.0], np.float32)
holds = True
print(f"openvino {openvino.__version__}, onnxruntime {onnxruntime.__version__}")
for dtype, least, most in (("uint16", 0, 65535), ("int16", -32768, 32767), ("uint8", 0, 255)):
    model = onnx.parser.parse_model(TEXT % dtype)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "net.onnx")
    means = 2 * 1e-4 * np.clip(np.round(2 * x / 1e-4), least, most)
    session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    runtime = session.run(None, {"x": x})[0]
    seen = openvino.Core().compile_model("net.onnx", "CPU")([x])[0]
    print(f"{dtype}, expected: {means}, and ONNX Runtime gives {runtime}")
    print(f"{dtype}, seen: {seen}")
    holds &= np.allclose(runtime, means, rtol=1e-4)
    holds &= np.allclose(seen, 4 * x) if dtype != "uint8" else np.allclose(seen, means, rtol=1e-4)
if not holds:
    raise SystemExit("this has changed")
PYTHON
