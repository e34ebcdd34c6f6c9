#!/bin/sh
# Greater of [3, 5, 1] and [3, 1, 4] in MNN, and Where with a row for its third input: both read other elements than
# broadcasting says, though Sub and Mul of the same shapes are right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet MNN==3.6.1 onnx==1.23.2 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import sys

import numpy as np
import onnx
import onnx.parser
import _tools
from MNN import expr, nn


def run(text, opset, **inputs):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "net.onnx")
    _tools.mnnconvert(["", "-f", "ONNX", "--modelFile", "net.onnx", "--MNNModel", "net.mnn", "--bizCode", "f"])
    manager = nn.create_runtime_manager(({"backend": 0, "numThread": 1, "precision": "high"},))
    net = nn.load_module_from_file("net.mnn", [*inputs], ["y"], runtime_manager=manager)
    given = [
        expr.const(a.astype(np.float32 if a.dtype.kind == "f" else np.int32), [*a.shape], expr.NCHW,
                   expr.float if a.dtype.kind == "f" else expr.int)
        for a in inputs.values()
    ]
    return np.array(expr.convert(net.forward(given)[0], expr.NCHW).read())


random = np.random.default_rng(0)
a, b = random.normal(size=(3, 5, 1)), random.normal(size=(3, 1, 4))
names = "float[3, 5, 1] a, float[3, 1, 4] b"
above = run(f"net ({names}) => (bool[3, 5, 4] y) {{ y = Greater(a, b) }}", 17, a=a, b=b).astype(bool)
apart = run(f"net ({names}) => (float[3, 5, 4] y) {{ y = Sub(a, b) }}", 17, a=a, b=b)
x, row = random.normal(size=(3, 4)), random.normal(size=(1, 4))
text = "net (bool[3, 4] m, float[3, 4] x, float[1, 4] row) => (float[3, 4] y) { y = Where(m, x, row) }"
chosen = run(text, 17, m=x > 0, x=x, row=row)
wrong = int((above != (a > b)).sum()), int((~np.isclose(chosen, np.where(x > 0, x, row))).sum())
print(f"MNN 3.6.1, onnx {onnx.__version__}")
print("expected: no wrong value of Sub, Greater and Where")
print(f"seen: {int((~np.isclose(apart, a - b, atol=1e-5)).sum())} of Sub, {wrong[0]} of 60 of Greater, {wrong[1]} of 12 of Where")
if not np.allclose(apart, a - b, atol=1e-5) or not all(wrong):
    sys.exit("this has changed")
PYTHON
