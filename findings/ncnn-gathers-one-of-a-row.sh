#!/bin/sh
# A Gather whose indices are a constant row: pnnx writes that one index is taken, which is the number of the axis, and
# the dim is gone. With a single index it is right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-deps pnnx==20261020 || exit 4
"$folder/env/bin/pip" install --quiet ncnn==1.0.20261020 onnx==1.23.2 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import importlib.util
import pathlib
import subprocess
import sys

import ncnn
import numpy as np
import onnx
import onnx.parser

PNNX = pathlib.Path(importlib.util.find_spec("pnnx").origin).parent / "pnnx"


def run(text, x):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "net.onnx")
    shape = f"[{','.join(map(str, x.shape))}]"
    subprocess.run([PNNX, "net.onnx", f"inputshape={shape}", "fp16=0"], check=True, capture_output=True)
    net = ncnn.Net()
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.load_param("net.ncnn.param")
    net.load_model("net.ncnn.bin")
    extractor = net.create_extractor()
    extractor.input("in0", ncnn.Mat(x).clone())
    return np.array(extractor.extract("out0")[1])


x = np.arange(12, dtype=np.float32).reshape(3, 4)
seen = {}
ASKED = ((0, "int64[2] i = {2, 0}", "2, 4"), (1, "int64[2] i = {3, 0}", "3, 2"), (1, "int64 i = {3}", "3"))
for axis, indices, shape in ASKED:
    text = f"net (float[3, 4] x) => (float[{shape}] y) <{indices}> {{ y = Gather <axis = {axis}> (x, i) }}"
    seen[axis, indices] = run(text, x).tolist()
print(f"pnnx 20261020, ncnn {ncnn.__version__}, onnx {onnx.__version__}")
print(f"expected: {np.take(x, [2, 0], 0).tolist()}, {np.take(x, [3, 0], 1).tolist()}, {np.take(x, 3, 1).tolist()}")
print(f"seen: {', '.join(map(str, seen.values()))}")
rows, columns, single = seen.values()
if rows != x[0].tolist() or columns != x[:, 1].tolist() or single != x[:, 3].tolist():
    sys.exit("this has changed")
PYTHON
