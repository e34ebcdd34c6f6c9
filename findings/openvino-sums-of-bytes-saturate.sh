#!/bin/sh
# A sum or product of bytes beyond 255 wraps around in ONNX's evaluator and in ONNX Runtime; OpenVINO gives 255, and of
# 32 bits it wraps around as they do.
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
from onnx.reference import ReferenceEvaluator

print(f"onnx {onnx.__version__}, openvino {openvino.__version__}")
seen = {}
for dtype, one, other in (("uint8", [100, 3], [200, 4]), ("int32", [2**31 - 1, 3], [5, 4])):
    body = f"net ({dtype}[n] a, {dtype}[n] b) => ({dtype}[n] y) {{ y = %s(a, b) }}"
    text = f'<ir_version: 9, opset_import: ["" : 17]> {body}'
    a, b = np.array(one, dtype), np.array(other, dtype)
    for operator in ("Add", "Mul"):
        model = onnx.parser.parse_model(text % operator)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, "net.onnx")
        right = ReferenceEvaluator(model).run(None, {"a": a, "b": b})[0].tolist()
        got = openvino.Core().compile_model("net.onnx", "CPU")([a, b])[0].tolist()
        seen[dtype, operator] = right, got
        print(f"{operator} of {dtype} {one} and {other}: expected: {right}; seen: {got}")
saturated = all(seen["uint8", operator][1] == [255, right] for operator, right in (("Add", 7), ("Mul", 12)))
if not saturated or seen["int32", "Add"][0] != seen["int32", "Add"][1]:
    raise SystemExit("this has changed")
PYTHON
