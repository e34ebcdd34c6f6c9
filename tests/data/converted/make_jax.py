"""Make a small network of JAX with jax2onnx, with what JAX itself computes.

pip install jax jax2onnx
python make_jax.py FOLDER
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax2onnx import to_onnx

RNG = np.random.default_rng(0)
FIRST, SECOND = (RNG.normal(size=size).astype(np.float32) for size in ((6, 8), (8, 3)))


def network(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.tanh(x @ FIRST) @ SECOND, axis=-1)


def main(folder: Path) -> None:
    made = to_onnx(network, [("batch", 6)])
    model = made if isinstance(made, onnx.ModelProto) else onnx.load(str(made))
    onnx.save(model, folder / "jax_softmax.onnx")
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    names = model.graph.input[0].name, model.graph.output[0].name
    np.savez(folder / "jax_softmax.npz", **dict(zip(names, (x, np.asarray(network(x))), strict=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
