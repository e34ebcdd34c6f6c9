#!/bin/sh
# LSTM with layout = 1 has batches first: the parser of TensorRT for RTX accepts the attribute, reads the input as if
# time were first, and gives outputs of another shape.
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
net (float[3, 5, 2] x, float[1, 8, 2] w, float[1, 8, 2] r)
  => (float[3, 5, 1, 2] y, float[3, 1, 2] h)
{ y, h = LSTM <hidden_size = 2, layout = 1> (x, w, r) }
""")
onnx.checker.check_model(model, full_check=True)
parsed = parser.parse(model.SerializeToString())
shapes = [tuple(network.get_output(place).shape) for place in range(network.num_outputs)]
print(f"onnx {onnx.__version__}, tensorrt_rtx {tensorrt_rtx.__version__}")
print("expected: refused, or outputs of (3, 5, 1, 2) and (3, 1, 2)")
print(f"seen: parsed {parsed}, outputs {shapes}")
if not parsed or shapes[1] == (3, 1, 2):
    raise SystemExit("this has changed")
PYTHON
