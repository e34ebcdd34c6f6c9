#!/bin/sh
# pnnx leaves Shrink as it is and its attributes out, which it says in its log and by no exit code; ncnn has a layer of
# that name, and computes it with lambd = 0.5 and without a bias.
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


x = np.array([-1, -0.375, 0.125, 0.375, 1], np.float32)
seen = {}
for attributes in ("lambd = 0.25, bias = 0.25", "lambd = 0.5, bias = 0.0"):
    text = f"net (float[5] x) => (float[5] y) {{ y = Shrink <{attributes}> (x) }}"
    seen[attributes] = run(text, x).tolist()
print(f"pnnx 20261020, ncnn {ncnn.__version__}, onnx {onnx.__version__}")
print("expected: [-0.75, -0.125, 0, 0.125, 0.75] and, with the layer's own defaults, [-1, 0, 0, 0, 1]")
print(f"seen: {', '.join(map(str, seen.values()))}")
if [*seen.values()] != [[-1, 0, 0, 0, 1]] * 2:
    sys.exit("this has changed")
PYTHON
