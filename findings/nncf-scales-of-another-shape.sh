#!/bin/sh
# NNCF compresses the weights of a MatMul into a file that runs. Of a Conv and of a MatMul of batches in 8 bits, and of a
# Gemm with transB in 4 bits, it writes scales of another shape than DequantizeLinear takes: onnx's checker says nothing,
# and no session computes the file.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 nncf==3.4.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON' 2>"$folder/stderr" || { cat "$folder/stderr"; exit 1; }
import logging

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import numpy_helper

import nncf

nncf.set_log_level(logging.ERROR)
rng, eight, four = np.random.default_rng(0), nncf.CompressWeightsMode.INT8_SYM, nncf.CompressWeightsMode.INT4_SYM
nets = {
    "MatMul, 8 bits": ("float[5, 64] x) => (float[5, 128] y) { y = MatMul(x, w) }", (64, 128), (5, 64), eight),
    "Gemm, transB, 8 bits": ("float[5, 64] x) => (float[5, 128] y) { y = Gemm<transB = 1>(x, w) }",
                             (128, 64), (5, 64), eight),
    "MatMul, 4 bits": ("float[5, 64] x) => (float[5, 128] y) { y = MatMul(x, w) }", (64, 128), (5, 64), four),
    "Conv, 8 bits": ("float[1, 4, 8, 8] x) => (float[1, 8, 6, 6] y) { y = Conv(x, w) }",
                     (8, 4, 3, 3), (1, 4, 8, 8), eight),
    "MatMul of batches, 8 bits": ("float[4, 5, 64] x) => (float[4, 5, 128] y) { y = MatMul(x, w) }",
                                  (4, 64, 128), (4, 5, 64), eight),
    "Gemm, transB, 4 bits": ("float[5, 64] x) => (float[5, 128] y) { y = Gemm<transB = 1>(x, w) }",
                             (128, 64), (5, 64), four),
}
seen = {}
for name, (text, weights, inputs, mode) in nets.items():
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> net (' + text)
    model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=weights).astype(np.float32), "w"))
    onnx.checker.check_model(model, full_check=True)
    options = {"group_size": 16, "all_layers": True} if mode is four else {}
    small = nncf.compress_weights(model, mode=mode, **options)
    onnx.checker.check_model(small)
    x = {"x": rng.normal(size=inputs).astype(np.float32)}
    try:
        onnxruntime.InferenceSession(small.SerializeToString()).run(None, x)
        seen[name] = "runs"
    except Exception as error:
        seen[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0].rpartition(' was false. ')[2]}"
print(f"onnxruntime {onnxruntime.__version__}, nncf {nncf.__version__}")
print("expected: each compressed model runs")
for name, became in seen.items():
    print(f"seen: {name}: {became}")
if [became == "runs" for became in seen.values()] != [True, True, True, False, False, False]:
    raise SystemExit("this has changed")
PYTHON
