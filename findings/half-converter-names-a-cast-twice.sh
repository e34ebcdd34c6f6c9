#!/bin/sh
# An input that is read by EyeLike, which stays in float32, and by an Add: convert_float_to_float16 of onnxconverter-
# common with keep_io_types makes two Casts whose outputs have one name, so that the file is invalid.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxconverter-common==1.16.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from importlib.metadata import version

import onnx
import onnx.parser
from onnxconverter_common.float16 import convert_float_to_float16

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[3, 3] x) => (float[3, 3] y)
{ e = EyeLike <dtype = 1> (x) y = Add(x, e) }
""")
onnx.checker.check_model(model, full_check=True)
half = convert_float_to_float16(model, keep_io_types=True)
print(f"onnx {onnx.__version__}, onnxconverter-common {version('onnxconverter-common')}")
print("expected: a valid model")
try:
    onnx.checker.check_model(half, full_check=True)
except Exception as error:
    print(f"seen: {str(error).strip().splitlines()[0]}")
    print(f"seen: outputs of nodes {[output for node in half.graph.node for output in node.output]}")
else:
    raise SystemExit("this has changed")
PYTHON
