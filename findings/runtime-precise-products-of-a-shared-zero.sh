#!/bin/sh
# On processors without VNNI session.x64quantprecision=1 keeps ONNX Runtime's products of 8 bits from saturating. Where
# two weights share their zero point, the session with it does not begin.
set -eu
grep -q -E 'avx512_vnni|avx_vnni' /proc/cpuinfo && { echo "nothing is said of processors with VNNI"; exit 3; }
grep -q avx2 /proc/cpuinfo || { echo "nothing is said of processors without AVX2"; exit 3; }
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
from onnx import numpy_helper

print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
rng = np.random.default_rng(0)
weights = [rng.integers(-127, 128, (16, 16)).astype(np.int8) for _ in range(2)]
seen = {}
for zero in ("a zero each", "one zero for both"):
    second = "other" if zero == "a zero each" else "none"
    own = ", int8 other = {0}" if zero == "a zero each" else ""
    model = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    net (float[n, 16] x) => (float[n, 16] y)
    <float step = {{0.05}}, uint8 middle = {{128}}, float scale = {{0.02}}, int8 none = {{0}}{own}>
    {{
        q0 = QuantizeLinear(x, step, middle)
        x0 = DequantizeLinear(q0, step, middle)
        w0 = DequantizeLinear(first, scale, none)
        y0 = MatMul(x0, w0)
        q1 = QuantizeLinear(y0, step, middle)
        x1 = DequantizeLinear(q1, step, middle)
        w1 = DequantizeLinear(second, scale, {second})
        y1 = MatMul(x1, w1)
        q2 = QuantizeLinear(y1, step, middle)
        y = DequantizeLinear(q2, step, middle)
    }}
    """)
    model.graph.initializer.extend(map(numpy_helper.from_array, weights, ("first", "second")))
    onnx.checker.check_model(model, full_check=True)
    for precise in ("0", "1"):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry("session.x64quantprecision", precise)
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options)
            seen[zero, precise] = "a session"
        except Exception as error:
            seen[zero, precise] = f"an error, {str(error).strip().splitlines()[-1][-60:]}"
for (zero, precise), got in seen.items():
    print(f"{zero}, x64quantprecision={precise}: expected: a session; seen: {got}")
failing = [key for key, got in seen.items() if got != "a session"]
if failing != [("one zero for both", "1")]:
    raise SystemExit("this has changed")
PYTHON
