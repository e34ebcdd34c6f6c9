#!/bin/sh
# Neg of 0 is -0, which a Reciprocal shows: OpenVINO gives it where the shape is fixed, and 0 where a dimension is
# dynamic. 0 - 0 is 0, and OpenVINO gives -0 where the shape is fixed.
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

core, x, found = openvino.Core(), np.zeros(1, np.float32), {}
for body, constant in (("Neg(x)", ""), ("Sub(zero, x)", "zero = Constant <value = float {0}> () ")):
    for shape in ("1", "n"):
        model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        net (float[{shape}] x) => (float[{shape}] y) {{ {constant}t = {body} y = Reciprocal(t) }}
        """)
        onnx.checker.check_model(model, full_check=True)
        (runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
        network = core.read_model(model.SerializeToString(), b"")
        compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found[body, shape] = float(runtime[0]), float(compiled([x])[0][0])
print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
print("expected: 1 / Neg(0) is -inf and 1 / (0 - 0) is inf, in both and with either shape")
for (body, shape), (runtime, vino) in found.items():
    print(f"seen: 1 / {body} of shape [{shape}]: onnxruntime {runtime}, openvino {vino}")
right, seen = [-np.inf, -np.inf, np.inf, np.inf], [-np.inf, np.inf, -np.inf, np.inf]
if [*found.values()] != [*zip(right, seen)]:
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text(encoding="utf-8") if cpu.exists() else ""
    if " avx2" not in flags or " avx512f" in flags:
        print("this was seen on a processor with AVX2 and without AVX-512; here it is another one")
        raise SystemExit(3)
    raise SystemExit("this has changed")
PYTHON
