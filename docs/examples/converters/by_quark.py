import numpy as np
from onnxruntime.quantization import CalibrationDataReader
from quark.onnx import Int8Spec, ModelQuantizer, QConfig, QLayerConfig, XInt8Spec


class Reader(CalibrationDataReader):
    def __init__(self):
        self.left = iter(np.split(np.load("data.npz")["x"], 16))

    def get_next(self):
        return next(({"x": x} for x in self.left), None)


for spec in (Int8Spec, XInt8Spec):
    config = QConfig(QLayerConfig(activation=spec(), weight=spec()))
    ModelQuantizer(config).quantize_model("net.onnx", f"quark-{spec.__name__}.onnx", Reader())
