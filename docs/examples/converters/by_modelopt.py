import numpy as np
import onnx
from modelopt.onnx.autocast import convert_to_mixed_precision
from modelopt.onnx.quantization import quantize

x = np.load("data.npz")["x"]
for mode, method in {"int8": "max", "fp8": "max", "int4": "awq_clip"}.items():
    quantize("net.onnx", mode, {"x": x}, calibration_method=method, output_path=f"modelopt-{mode}.onnx")
for kind in ("fp16", "bf16"):
    onnx.save(convert_to_mixed_precision("net.onnx", low_precision_type=kind), f"autocast-{kind}.onnx")
