#!/bin/sh
# The hyperbolic tangent lies between -1 and 1 and the sigmoid between 0 and 1. ONNX Runtime's are polynomials that
# leave these ranges by a unit or two, so that the root of 1 - tanh(x)**2 is NaN.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[n] x) => (float[n] t, float[n] s, float[n] r)
{ t = Tanh(x) s = Sigmoid(x) one = Constant <value_float = 1.0> () q = Mul(t, t) d = Sub(one, q) r = Sqrt(d) }
""")
onnx.checker.check_model(model, full_check=True)
x = np.linspace(-20, 20, 1000001, dtype=np.float32)
tanh, sigmoid, root = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
print(f"onnxruntime {onnxruntime.__version__}")
print("expected: Tanh up to 1, Sigmoid up to 1 and above 0, which 2.1e-9 is at -20; no root of a negative number")
print(f"seen: Tanh up to {tanh.max():.8g}, Sigmoid up to {sigmoid.max():.8g} and 0 at {x[sigmoid == 0].max():.5g}, "
      f"{np.isnan(root).sum()} roots of {len(x)} are NaN")
if tanh.max() <= 1:
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text(encoding="utf-8") if cpu.exists() else ""
    if " avx2" not in flags or " avx512f" in flags:
        print("this was seen on a processor with AVX2 and without AVX-512; here it is another one")
        raise SystemExit(3)
    raise SystemExit("this has changed")
PYTHON
