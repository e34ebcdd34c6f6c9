#!/bin/sh
# A model in float64: the parser of TensorRT for RTX accepts it, and inputs, constants and outputs are float32, also
# behind a Cast to DOUBLE.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnx==1.23.2 tensorrt-rtx-cu12==1.7.1.116 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import onnx
import onnx.parser
import tensorrt_rtx


class Quiet(tensorrt_rtx.ILogger):
    """Keep what the parser says."""

    def __init__(self):
        tensorrt_rtx.ILogger.__init__(self)
        self.said = []

    def log(self, severity, message):
        self.said.append(message)


log = Quiet()
builder = tensorrt_rtx.Builder(log)
network = builder.create_network(1)
parser = tensorrt_rtx.OnnxParser(network, log)

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (double[2] x, float[2] f) => (double[2] y, double[2] c)
<double[1] k = {1.00000000001}>
{ y = Mul(x, k) c = Cast <to = 11> (f) }
""")
onnx.checker.check_model(model, full_check=True)
parsed = parser.parse(model.SerializeToString())
kinds = [network.get_input(0).dtype, network.get_output(0).dtype, network.get_output(1).dtype]
print(f"onnx {onnx.__version__}, tensorrt_rtx {tensorrt_rtx.__version__}")
print("expected: refused, since TensorRT has no float64")
print(f"seen: parsed {parsed}, input and outputs {[str(kind).rsplit('.')[-1] for kind in kinds]}")
if not parsed or set(kinds) != {tensorrt_rtx.DataType.FLOAT}:
    raise SystemExit("this has changed")
PYTHON
