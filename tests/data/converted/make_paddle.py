"""Make a small network of PaddlePaddle with paddle2onnx, with what PaddlePaddle itself computes.

pip install paddlepaddle paddle2onnx
python make_paddle.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import paddle


def main(folder: Path) -> None:
    paddle.seed(0)
    network = paddle.nn.Sequential(
        paddle.nn.Linear(6, 8), paddle.nn.LayerNorm(8), paddle.nn.GELU(), paddle.nn.Linear(8, 3)
    )
    network.eval()
    spec = paddle.static.InputSpec([None, 6], "float32", "x")
    paddle.onnx.export(network, str(folder / "paddle_gelu"), input_spec=[spec], opset_version=17)
    model = onnx.load(folder / "paddle_gelu.onnx")
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    names = model.graph.input[0].name, model.graph.output[0].name
    outputs = (x, network(paddle.to_tensor(x)).numpy())
    np.savez(folder / "paddle_gelu.npz", **dict(zip(names, outputs, strict=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
