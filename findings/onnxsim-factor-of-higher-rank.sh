#!/bin/sh
# A convolution over rows times a constant of rank 4: onnxsim multiplies the weights by it, which get a dimension
# more, and the model that it returns is invalid.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 onnxsim==0.8.1 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import onnx
import onnx.parser
import onnxsim

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[1, 1, 5] x) => (float[1, 1, 2, 3] y)
<float[2, 1, 3] w = {1, 2, 3, 4, 5, 6}, float[1, 1, 1, 1] two = {2}>
{ c = Conv(x, w) y = Mul(c, two) }
""")
onnx.checker.check_model(model, full_check=True)
simpler, _ = onnxsim.simplify(model)
nodes = [node.op_type for node in simpler.graph.node]
weights = [list(weight.dims) for weight in simpler.graph.initializer]
print(f"onnx {onnx.__version__}, onnxsim {onnxsim.__version__}")
print("expected: a valid model whose output has rank 4")
try:
    onnx.checker.check_model(simpler, full_check=True)
except Exception as error:
    print(f"seen: {nodes} with weights of {weights}, invalid: {str(error).strip()[:150]}")
else:
    raise SystemExit(f"this has changed: {nodes} with weights of {weights} is valid")
PYTHON
