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


def network(x: jax.Array) -> jax.Array:
    first, second = (jax.random.normal(jax.random.key(seed), size) for seed, size in ((0, (6, 8)), (1, (8, 3))))
    return jax.nn.softmax(jnp.tanh(x @ first) @ second, axis=-1)


def main(folder: Path) -> None:
    made = to_onnx(network, [("batch", 6)])
    model = made if isinstance(made, onnx.ModelProto) else onnx.load(str(made))
    onnx.save(model, folder / "jax_softmax.onnx")
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    names = model.graph.input[0].name, model.graph.output[0].name
    np.savez(folder / "jax_softmax.npz", **dict(zip(names, (x, np.asarray(network(x))), strict=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
