#!/bin/sh
# A model with a local function, converted to a later opset: the calls stay and the function is gone, and the checker
# says nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import onnx
import onnx.parser
import onnxruntime
from onnx import version_converter

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18, "own" : 1]>
net (float[3] x) => (float[3] y) { y = own.Twice(x) }
<domain: "own", opset_import: ["" : 18]>
Twice (a) => (r) { r = Add(a, a) }
""")
onnx.checker.check_model(model, full_check=True)
onnxruntime.InferenceSession(model.SerializeToString())
later = version_converter.convert_version(model, 21)
onnx.checker.check_model(later, full_check=True)
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: the converted model has its function, or the converter refuses")
print(f"seen: {len(model.functions)} function before, {len(later.functions)} after; valid to the checker")
try:
    onnxruntime.InferenceSession(later.SerializeToString())
except Exception as error:
    print(f"seen: {str(error)[:110]}")
else:
    raise SystemExit("this has changed")
PYTHON
