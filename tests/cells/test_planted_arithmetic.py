"""Runtimes that claim fp32 and compute in less: found at the default tolerances, on plain values alone."""

from collections.abc import Callable

import numpy as np
import pytest

from conformance.process.arrays import Array
from conformance.results.records.record import Record
from tests.kit.cases import PASSED, Bench, say, verdict
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

Product = Callable[[Array, Array], Array]
"""(m, n) and (n, k) in float32 to (m, k) in float32."""


def rounded(array: Array) -> Array:
    """float32 with a mantissa of 10 bits, as TF32 has it."""
    return (np.ascontiguousarray(array).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def products_of_10_bits(a: Array, b: Array) -> Array:
    return rounded(a) @ rounded(b)


def sums_one_by_one(a: Array, b: Array, dtype: type = np.float32) -> Array:
    products = (a[:, :, None] * b).astype(dtype)
    return np.add.accumulate(products, axis=1, dtype=dtype)[:, -1].astype(np.float32)


def sums_in_fp16(a: Array, b: Array) -> Array:
    return sums_one_by_one(a, b, np.float16)


def sums_in_another_order(a: Array, b: Array) -> Array:
    return np.asarray((a[:, ::-1].astype(np.float32) @ b[::-1]), np.float32)


# forward, the shapes of its inputs, and its outputs, computed with a product of matrices
NETWORKS: dict[str, tuple[str, dict[str, str], Callable[[dict[str, Array], Product, int], Array]]] = {
    "a product of matrices": (
        "x @ y", {"x": "[batch, K]", "y": "[K, 3]"}, lambda given, product, _: product(given["x"], given["y"]),
    ),
    "a sum": ("x.sum(-1)", {"x": "[batch, K]"},
        lambda given, product, terms: product(given["x"], np.ones((terms, 1), np.float32))[:, 0]),
    "two layers": ("torch.relu(x @ a) @ b", {"x": "[batch, K]", "a": "[K, 64]", "b": "[64, 8]"},
        lambda given, product, _: product(np.maximum(product(given["x"], given["a"]), np.float32(0)), given["b"])),
}  # fmt: skip


def computed(bench: Bench, name: str, product: Product, terms: int, **settings: int) -> Record:
    """The record of a network whose runtime computes with this product, with its optimizer on or off."""
    forward, inputs, outputs = NETWORKS[name]
    shapes = "\n".join(f'  {name}: "float32{shape}"' for name, shape in inputs.items())
    body = say(f"forward: {forward}", f"inputs:\n{shapes}", "dims: {batch: 1..4}", "examples: {values: 1}")
    with wrong_runtime(lambda given, _: [outputs(given, product, terms)], *ANY_OPTIMIZER):
        return bench.run(body.replace("K", str(terms)), **settings)


@pytest.mark.parametrize("name, product, terms", [
    *((name, product, 256) for name in NETWORKS for product in (products_of_10_bits, sums_in_fp16)
      if (name, product) != ("a sum", products_of_10_bits)),
    *(("a product of matrices", products_of_10_bits, terms) for terms in (16, 4096)),
])  # fmt: skip
def test_less_precision_than_float32_is_the_runtimes_fault(bench, name, product, terms):
    assert verdict(computed(bench, name, product, terms)) == ("failed", "compare", "WrongValue", "runtime")


@pytest.mark.parametrize("product", [sums_in_another_order, sums_one_by_one])
@pytest.mark.parametrize("name, terms", [("a product of matrices", 4096), ("two layers", 256)])
def test_float32_in_another_order_is_sound(bench, name, product, terms):
    assert verdict(computed(bench, name, product, terms)) == PASSED
