#!/bin/sh
# Q/DQ in uint8 with zero point 0 has the range 0 to 255; the parser of TensorRT for RTX accepts it with a warning
# and quantizes to int8, whose highest value is 127.
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
<ir_version: 9, opset_import: ["" : 13]>
net (float[4] x) => (float[4] y)
<float s = {0.1}, uint8 z = {0}>
{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }
""")
onnx.checker.check_model(model, full_check=True)
parsed = parser.parse(model.SerializeToString())
kinds = [network.get_layer(place).get_output(0).dtype for place in range(network.num_layers)]
print(f"onnx {onnx.__version__}, tensorrt_rtx {tensorrt_rtx.__version__}")
print("expected: refused, or a tensor of UINT8 between both nodes")
print(f"seen: parsed {parsed}, types {[str(kind).rsplit('.')[-1] for kind in kinds]}")
print("seen: " + next((said[:150] for said in log.said if "UINT8 zero_point" in said), "no warning"))
if not parsed or tensorrt_rtx.DataType.UINT8 in kinds:
    raise SystemExit("this has changed")
PYTHON
