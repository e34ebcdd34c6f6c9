#!/bin/sh
# Exp of 88.5 is 2.7e38, which float32 holds (to 3.4e38); OpenVINO gives infinity from 88.376 on. ONNX Runtime goes
# on to 88.72.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import openvino

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[n] x) => (float[n] y)
{ y = Exp(x) }
""")
onnx.checker.check_model(model, full_check=True)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
x = np.linspace(88, 89, 100001, dtype=np.float32)
np.seterr(over="ignore")
(runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
vino = compiled([x])[0]
ends = [float(x[np.argmax(np.isinf(value))]) for value in (np.exp(x), runtime, vino)]
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print(f"expected: infinity from {ends[0]:.4f} on")
print(f"seen: onnxruntime from {ends[1]:.4f}, openvino from {ends[2]:.4f}")
if ends[2] > 88.6:
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text(encoding="utf-8") if cpu.exists() else ""
    if " avx2" not in flags or " avx512f" in flags:
        print("this was seen on a processor with AVX2 and without AVX-512; here it is another one")
        raise SystemExit(3)
    raise SystemExit("this has changed")
PYTHON
