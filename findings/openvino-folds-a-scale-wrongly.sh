#!/bin/sh
# With LP_TRANSFORMS_MODE=NO, which leaves products between Q and DQ in float32, OpenVINO folds a product by a row of
# constants into the quantization behind it, and its values are other ones; by a single constant they are right.
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
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 19]>
net (float[n, 32] x) => (float[n, 32] y)
<float step = {0.01}, int8 zero = {2}>
{
    scaled = Mul(x, s)
    q = QuantizeLinear(scaled, step, zero)
    y = DequantizeLinear(q, step, zero)
}
""")
rng = np.random.default_rng(0)
x = rng.normal(size=(8, 32)).astype(np.float32)
print(f"onnx {onnx.__version__}, openvino {openvino.__version__}")
seen = {}
ROW = rng.uniform(0.3, 0.9, (1, 32)).astype(np.float32)
for what, scale in (("one constant", np.float32([[0.7]])), ("a row", ROW)):
    del model.graph.initializer[2:]
    model.graph.initializer.append(numpy_helper.from_array(scale, "s"))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "net.onnx")
    right = ReferenceEvaluator(model).run(None, {"x": x})[0]
    for mode in ({}, {"LP_TRANSFORMS_MODE": "NO"}):
        got = openvino.Core().compile_model("net.onnx", "CPU", mode)([x])[0]
        seen[what, bool(mode)] = float(np.abs(got - right).max())
print("expected: within a step of 0.01 of what ONNX's evaluator gives, with the property and without")
for (what, given), off in seen.items():
    print(f"seen: {what}, {'with' if given else 'without'} it: {off:.3g} off")
if seen["a row", True] < 0.1 or max(off for each, off in seen.items() if each != ("a row", True)) > 0.011:
    raise SystemExit("this has changed")
PYTHON
