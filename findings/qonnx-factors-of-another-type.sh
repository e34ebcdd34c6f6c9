#!/bin/sh
# Two rewrites of qonnx make a constant without asking for its type: GemmToMatMul writes alpha and beta in float64 beside
# float32, so that the model does not load, and ConvertDivToMul turns a division of integers by 2 into a product with 0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 qonnx==1.0.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.gemm_to_matmul import GemmToMatMul
from qonnx.transformation.general import ConvertDivToMul
from qonnx.transformation.infer_shapes import InferShapes


def given(text, x, *rewrites):
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 9]> ' + text)
    onnx.checker.check_model(model, full_check=True)
    wrapped = ModelWrapper(model).transform(InferShapes())
    for rewrite in rewrites:
        wrapped = wrapped.transform(rewrite)
    try:
        session = onnxruntime.InferenceSession(wrapped.model.SerializeToString())
    except Exception as error:
        return f"does not load ({type(error).__name__})"
    return session.run(None, {"x": x})[0].tolist()


gemm = """net (float[1, 2] x) => (float[1, 2] y) <float[2, 2] b = {1, 2, 3, 4}, float[2] c = {1, 1}>
{ y = Gemm <alpha = 0.5, beta = 0.5> (x, b, c) }"""
halves = "net (int64[3] x) => (int64[3] y) <int64[1] two = {2}> { y = Div(x, two) }"
ones, whole = np.ones((1, 2), np.float32), np.array([2, 4, 9])
print(f"onnxruntime {onnxruntime.__version__}, qonnx {version('qonnx')}")
print(f"expected: Gemm {given(gemm, ones)}, Div {given(halves, whole)}")
seen = given(gemm, ones, GemmToMatMul()), given(halves, whole, ConvertDivToMul())
print(f"seen: Gemm {seen[0]}, Div {seen[1]}")
if not str(seen[0]).startswith("does not load") or seen[1] != [0, 0, 0]:
    raise SystemExit("this has changed")
PYTHON
