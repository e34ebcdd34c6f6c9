#!/bin/sh
# ReduceL2 and ReduceL1 whose axes are an input, as they are from opset 18 on, reduce over all axes in MNN; with the
# attribute of opset 17 over those that it names, and without keepdims, which is the default. ReduceSum reads both.
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


x = np.random.default_rng(0).normal(size=(3, 4, 5))
seen = {}
for name in ("ReduceL2", "ReduceL1", "ReduceSum"):
    text = f"net (float[3, 4, 5] x) => (float[3, 1, 1] y) <int64[2] axes = {{1, 2}}> {{ y = {name} (x, axes) }}"
    seen[name] = run(text, 18, x=x).shape
    if name != "ReduceSum":
        text = f"net (float[3, 4, 5] x) => (float[3, 1, 1] y) {{ y = {name} <axes = [1, 2]> (x) }}"
        seen[f"{name} with an attribute"] = run(text, 17, x=x).shape
print(f"MNN 3.6.1, onnx {onnx.__version__}")
print("expected: shapes of (3, 1, 1)")
print(f"seen: {seen}")
if seen["ReduceL2"] == (3, 1, 1) or seen["ReduceL1"] == (3, 1, 1) or seen["ReduceSum"] != (3, 1, 1):
    sys.exit("this has changed")
PYTHON
