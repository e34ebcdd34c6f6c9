"""Export small functions of JAX by jax2onnx, each with an input and what JAX gives for it.

Run as a script, by a Python that has both (``evidence/parsed_jax.py``).
"""

import importlib.metadata
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn
from jax2onnx import to_onnx

ROWS, IMAGE = (3, 4), (1, 6, 7, 2)
UNARY = """
jnp.abs jnp.exp jnp.sin jnp.cos jnp.tanh jnp.sinh jnp.cosh jnp.arctan jnp.arcsinh jnp.sign jnp.floor jnp.ceil
jnp.round jnp.square jnp.negative jnp.expm1 lax.erf lax.logistic nn.relu nn.sigmoid nn.softplus nn.silu
nn.gelu nn.elu nn.celu nn.selu nn.leaky_relu nn.hard_sigmoid nn.hard_swish nn.hard_tanh nn.soft_sign
nn.log_sigmoid nn.relu6 nn.mish nn.softmax nn.log_softmax nn.standardize jnp.sum jnp.mean jnp.max jnp.min
jnp.prod jnp.var jnp.std jnp.argmax jnp.argmin jnp.cumsum jnp.sort jnp.argsort jnp.transpose jnp.ravel
jnp.flipud jnp.fliplr jnp.tril jnp.triu jnp.diff jax.scipy.special.logsumexp
"""
TEXTS = {
    "log of positive": "jnp.log(jnp.abs(x) + 1)",
    "sqrt": "jnp.sqrt(jnp.abs(x))",
    "rsqrt": "lax.rsqrt(x * x + 1)",
    "power": "jnp.abs(x) ** 1.5",
    "clip": "jnp.clip(x, -0.5, 0.5)",
    "where": "jnp.where(x > 0, x, -x)",
    "softmax of columns": "nn.softmax(x, axis=0)",
    "sum of columns": "x.sum(axis=0, keepdims=True)",
    "largest of rows": "x.max(axis=1)",
    "mean of rows": "x.mean(axis=-1, keepdims=True)",
    "matmul": "x @ W",
    "matmul transposed": "x.T @ x",
    "dot_general": "jnp.einsum('ab,cb->ac', x, x)",
    "outer": "jnp.outer(x[0], x[:, 0])",
    "reshape": "x.reshape(2, 6)",
    "broadcast": "jnp.broadcast_to(x[:1], (5, 4))",
    "concatenate": "jnp.concatenate([x, x * 2], axis=1)",
    "stack": "jnp.stack([x, -x])",
    "slice": "x[1:, ::2]",
    "backwards": "x[::-1]",
    "take": "jnp.take(x, jnp.array([2, 0]), axis=0)",
    "pad": "jnp.pad(x, ((1, 0), (2, 1)))",
    "pad with edges": "jnp.pad(x, ((1, 1), (0, 0)), mode='edge')",
    "tile": "jnp.tile(x, (2, 1))",
    "repeat": "jnp.repeat(x, 2, axis=0)",
    "roll": "jnp.roll(x, 1, axis=1)",
    "expand": "x[:, None, :] - x[None]",
    "one hot": "nn.one_hot(jnp.argmax(x, axis=1), 4)",
    "top k": "lax.top_k(x, 2)[0]",
    "cumulative product": "jnp.cumprod(x, axis=1)",
    "mod": "jnp.mod(x * 10, 3)",
    "remainder": "lax.rem(x * 10, 3.0)",
    "floor divide": "jnp.floor_divide(x * 10, 3)",
    "maximum": "jnp.maximum(x, W[:3])",
    "atan2": "jnp.arctan2(x, W[:3])",
    "whole numbers": "(x * 10).astype(jnp.int32) // 3",
    "logical": "((x > 0) & (x < 1)).astype(jnp.float32)",
    "isfinite": "jnp.isfinite(x).astype(jnp.float32)",
    "linspace": "x + jnp.linspace(0, 1, 4)",
    "iota": "x * jnp.arange(4.0)",
    "layer norm": "(x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)",
    "attention": "nn.softmax(x @ x.T / 2.0) @ x",
    "mlp": "nn.relu(x @ W + 1) @ W.T",
    "glu": "nn.glu(x)",
    "loop": "lax.fori_loop(0, 3, lambda i, c: c * 0.5 + x, x)",
    "scan": "lax.scan(lambda c, r: (c + r, c * r), x[0], x)[1]",
    "condition": "lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x)",
    "while": "lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, jnp.abs(x))",
    "scatter": "x.at[1].set(0.0)",
    "gather": "x[jnp.array([0, 2]), jnp.array([1, 3])]",
    "triangle": "jnp.triu(x, 1)",
    "dynamic slice": "lax.dynamic_slice(x, (1, 1), (2, 2))",
    "searched": "jnp.searchsorted(jnp.arange(4.0), x[0])",
}
IMAGES = {
    "convolution": "lax.conv_general_dilated(x, K, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
    "strides": "lax.conv_general_dilated(x, K, (2, 2), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
    "dilation": "lax.conv_general_dilated(x, K, (1, 1), 'VALID', rhs_dilation=(2, 2), "
    "dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
    "max pool": "lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')",
    "sum pool": "lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')",
    "global mean": "x.mean(axis=(1, 2))",
    "resize": "jax.image.resize(x, (1, 12, 14, 2), 'nearest')",
    "linear resize": "jax.image.resize(x, (1, 12, 14, 2), 'linear')",
    "transpose": "jnp.transpose(x, (0, 3, 1, 2))",
    "cnn": "nn.relu(lax.conv_general_dilated(x, K, (1, 1), 'SAME', "
    "dimension_numbers=('NHWC', 'HWIO', 'NHWC'))).mean(axis=(1, 2)) @ W[:3]",
}


def models() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return by name an expression of x, and the shape of x."""
    unary = {word: (f"{word}(x)", ROWS) for word in UNARY.split()}
    return {
        **unary,
        **{name: (text, ROWS) for name, text in TEXTS.items()},
        **{name: (text, IMAGE) for name, text in IMAGES.items()},
    }


def main(folder: Path) -> None:
    rng = np.random.default_rng(3)
    known = {
        "jax": jax,
        "jnp": jnp,
        "lax": lax,
        "nn": nn,
        "W": jnp.asarray(rng.normal(size=(4, 4)), jnp.float32),
        "K": jnp.asarray(rng.normal(size=(3, 3, 2, 3)), jnp.float32),
    }
    for number, (name, (text, shape)) in enumerate(models().items()):
        function = eval(f"lambda x: {text}", known)
        x = rng.normal(size=shape).astype(np.float32)
        try:
            model = to_onnx(function, [shape], opset=21)
            right = np.asarray(function(x))
        except Exception as error:  # what it cannot export is no model
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
            continue
        (folder / f"{number:03}.onnx").write_bytes(model.SerializeToString())
        np.savez(folder / f"{number:03}.npz", name=name, x=x, right=right)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax2onnx", "jax")))
