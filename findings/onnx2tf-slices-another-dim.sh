#!/bin/sh
# A roll along the second of four dims, written by two Slices and a Concat as exporters do: onnx2tf slices the last dim
# instead, also of an input that it is told to leave as it is, and joins along the second, so that the shape is wrong.
# In three dims it is right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
# it asks for Python 3.12, and has nothing that 3.11 does not take
"$folder/env/bin/pip" install --quiet --ignore-requires-python onnx2tf==2.6.9 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import contextlib
import io
import sys

import numpy as np
import onnx
import onnx.parser
import onnx2tf
from ai_edge_litert.interpreter import Interpreter

ROLL = """<ir_version: 8, opset_import: ["" : 17]> net (float[SHAPE] x) => (float[SHAPE] y)
<int64[1] last = {-1}, int64[1] end = {9999}, int64[1] zero = {0}, int64[1] one = {1}> {
u = Slice(x, last, end, one) v = Slice(x, zero, last, one) y = Concat <axis = 1> (u, v) }"""


def rolled(x):
    model = onnx.parser.parse_model(ROLL.replace("SHAPE", ", ".join(map(str, x.shape))))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "net.onnx")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        onnx2tf.convert(
            input_onnx_file_path="net.onnx", output_folder_path="out", verbosity="error",
            keep_shape_absolutely_input_names=["x"],
        )
    net = Interpreter("out/net_float32.tflite", num_threads=1)
    net.allocate_tensors()
    net.set_tensor(net.get_input_details()[0]["index"], x)
    net.invoke()
    return net.get_tensor(net.get_output_details()[0]["index"])


x = np.random.default_rng(0).normal(size=(3, 5, 6, 4)).astype(np.float32)
four, three = rolled(x), rolled(x[..., 0].copy())
print(f"onnx2tf 2.6.9, onnx {onnx.__version__}")
print("expected: (3, 5, 6, 4), and np.roll")
print(f"seen: {four.shape}, and in three dims {np.array_equal(three, np.roll(x[..., 0], 1, 1))}")
if four.shape == x.shape or not np.array_equal(three, np.roll(x[..., 0], 1, 1)):
    sys.exit("this has changed")
PYTHON
