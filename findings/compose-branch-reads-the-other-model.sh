#!/bin/sh
# Two models are merged, the first with a prefix for its names. Its branch of an If reads a constant of the graph
# around it, which gets the prefix while the branch keeps the old name: that of a constant of the second model.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.compose
import onnx.parser
import onnxruntime

first = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 18]>
one (bool c, float[2] x) => (float[2] y)
<float k = {2}>
{
  y = If (c) <
    then_branch = yes () => (float[2] a) { a = Mul(x, k) },
    else_branch = no () => (float[2] b) { b = Identity(x) }
  >
}
""")
second = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 18]>
two (float[2] u) => (float[2] v) <float k = {100}> { v = Add(u, k) }
""")
merged = onnx.compose.merge_models(first, second, [("y", "u")], prefix1="first/")
for model in (first, second, merged):
    onnx.checker.check_model(model, full_check=True)
c, x = np.array(True), np.array([1, 2], np.float32)
(between,) = onnxruntime.InferenceSession(first.SerializeToString()).run(None, {"c": c, "x": x})
(wanted,) = onnxruntime.InferenceSession(second.SerializeToString()).run(None, {"u": between})
session = onnxruntime.InferenceSession(merged.SerializeToString())
(seen,) = session.run(None, {"first/c": c, "first/x": x})
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print(f"expected: {wanted}, twice x and 100, as of one model after the other")
print(f"seen: {seen}, a hundred times x and 100")
if np.array_equal(seen, wanted):
    raise SystemExit("this has changed")
PYTHON
