"""ONNX models written as text."""

import numpy as np
import onnx
from onnx import numpy_helper, parser


def model_of(text: str, opset: int = 17, **initializers: np.ndarray) -> onnx.ModelProto:
    """Return the graph ``text`` as a model; ``initializers`` by name."""
    version = 8 if opset < 19 else 10
    made = parser.parse_model(f'<ir_version: {version}, opset_import: ["" : {opset}]> {text}')
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()
    )
    return made
