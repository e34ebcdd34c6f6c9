#!/bin/sh
# To quantize a model is to round its numbers. Quark's XInt8 also puts a piecewise linear HardSigmoid in place of each
# Sigmoid, times a factor near 1, since the processor that it writes for has no other: sigmoid(1) is 0.66, not 0.73.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet amd-quark==0.13 onnx==1.22.0 onnxruntime==1.32.0 torch==2.15.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON' 2>"$folder/stderr" || { cat "$folder/stderr"; exit 1; }
import contextlib
import io
from importlib.metadata import version

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import quark.onnx as quark
from onnxruntime.quantization import CalibrationDataReader

x = np.array([[-4, -2, -1, 0, 1, 2, 4]], np.float32)


class Reader(CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"x": x}] * 2)

    def get_next(self):
        return next(self.left, None)


model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[1, 7] x) => (float[1, 7] y)
{ r = Relu(x) y = Sigmoid(r) }
""")
onnx.checker.check_model(model, full_check=True)
onnx.save(model, "net.onnx")
layer = quark.QLayerConfig(activation=quark.XInt8Spec(), weight=quark.XInt8Spec())
with contextlib.redirect_stdout(io.StringIO()):
    quark.ModelQuantizer(quark.QConfig(layer)).quantize_model("net.onnx", "small.onnx", Reader())
right, got = (onnxruntime.InferenceSession(file).run(None, {"x": x})[0][0, 3:] for file in ("net.onnx", "small.onnx"))
operators = [node.op_type for node in onnx.load("small.onnx").graph.node]
print(f"onnxruntime {onnxruntime.__version__}, amd-quark {version('amd-quark')}")
print(f"expected: of 0, 1, 2 and 4 the Sigmoid is {right.round(3).tolist()}, and 8 bits are off by 0.004")
print(f"seen: {got.round(3).tolist()}, by {', '.join(operators)}")
if "Sigmoid" in operators or np.abs(got - right).max() < 0.04:
    raise SystemExit("this has changed")
PYTHON
