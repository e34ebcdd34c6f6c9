#!/bin/sh
# convert_float_to_float16 of ONNX Runtime's transformers with keep_io_types appends the Cast of an input behind the
# node that reads it: ONNX Runtime sorts and runs the file, and to the checker it is invalid.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 sympy==1.14.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import onnx
import onnx.parser
import onnxruntime
from onnxruntime.transformers.float16 import convert_float_to_float16

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[2] x) => (float[2] y)
<float[2] k = {1, 2}>
{ y = Mul(x, k) }
""")
onnx.checker.check_model(model, full_check=True)
half = convert_float_to_float16(model, keep_io_types=True)
onnxruntime.InferenceSession(half.SerializeToString())
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
print("expected: Cast, Mul, Cast: nodes in the order in which they can run")
print(f"seen: {', '.join(node.op_type for node in half.graph.node)}; onnxruntime loads it")
try:
    onnx.checker.check_model(half)
except onnx.checker.ValidationError as error:
    print(f"seen: {str(error).strip().splitlines()[0]}")
else:
    raise SystemExit("this has changed")
PYTHON
