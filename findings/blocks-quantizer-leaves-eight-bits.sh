#!/bin/sh
# ONNX Runtime's MatMulNBitsQuantizer, asked for 8 bits as DequantizeLinear, logs a line and gives the model back
# unquantized; asked for 2 bits in that form it raises an error, and 8 bits as MatMulNBits are written.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet onnxruntime==1.32.0 onnx==1.23.2 onnx-ir==1.1.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import numpy_helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}")
text = '<ir_version: 10, opset_import: ["" : 21]> net (float[n, 64] x) => (float[n, 32] y) { y = MatMul(x, w) }'
weights = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
seen = {}
for bits, form in ((2, "QDQ"), (8, "QDQ"), (8, "QOperator")):
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.checker.check_model(model, full_check=True)
    try:
        quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=32, quant_format=QuantFormat[form])
        quantizer.process()
        seen[bits, form] = " ".join(node.op_type for node in quantizer.model.model.graph.node)
    except AssertionError as error:
        seen[bits, form] = f"an error, {error}"
print("expected: of 8 bits as QDQ DequantizeLinear MatMul, or an error as of 2 bits")
for (bits, form), got in seen.items():
    print(f"seen: of {bits} bits as {form} {got}")
if seen[8, "QDQ"] != "MatMul" or not seen[2, "QDQ"].startswith("an error") or seen[8, "QOperator"] != "MatMulNBits":
    raise SystemExit("this has changed")
PYTHON
