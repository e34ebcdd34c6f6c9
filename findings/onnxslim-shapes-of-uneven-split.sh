#!/bin/sh
# Split of seven values in three parts gives 3, 3 and 1: onnxslim writes 2 for each declared output, so that a valid
# model comes out invalid.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxslim==0.1.98 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import onnx
import onnx.parser
import onnxslim

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[7] x) => (float[3] p, float[3] q, float[1] r)
{ a, b, c = Split <axis = 0, num_outputs = 3> (x) p = Neg(a) q = Abs(b) r = Exp(c) }
""")
onnx.checker.check_model(model, full_check=True)
slim = onnxslim.slim(model)
declared = [[size.dim_value for size in output.type.tensor_type.shape.dim] for output in slim.graph.output]
print(f"onnx {onnx.__version__}, onnxslim {onnxslim.__version__}")
print("expected: outputs of [3], [3] and [1], as declared before")
print(f"seen: declared outputs {declared}")
try:
    onnx.checker.check_model(slim, full_check=True)
except Exception as error:
    print(f"seen: invalid: {str(error).strip()[-90:]}")
else:
    raise SystemExit("this has changed")
PYTHON
