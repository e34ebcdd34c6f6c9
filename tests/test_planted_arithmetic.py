"""Runtimes that say fp32 and compute in less: found at the default tolerances, on plain values alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from conformance.arrays import Array
from conformance.runtimes import onnxruntime
from tests.support import PASSED, Bench, altered, say, verdict

Product = Callable[[Array, Array], Array]
"""(m, n) and (n, k) in float32 to (m, k) in float32."""


def rounded(array: Array) -> Array:
    """float32 with a mantissa of 10 bits, as TF32 has it."""
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def products_of_10_bits(a: Array, b: Array) -> Array:
    return rounded(np.ascontiguousarray(a)) @ rounded(np.ascontiguousarray(b))


def sums_in_fp16(a: Array, b: Array) -> Array:
    total = np.zeros((len(a), b.shape[1]), np.float16)
    for k in range(a.shape[1]):
        total = total + (a[:, k : k + 1] * b[k]).astype(np.float16)
    return total.astype(np.float32)


def sums_in_another_order(a: Array, b: Array) -> Array:
    return np.asarray((a[:, ::-1].astype(np.float32) @ b[::-1]), np.float32)


def sums_one_by_one(a: Array, b: Array) -> Array:
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k]
    return total


def sums_by_blocks(a: Array, b: Array) -> Array:
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(0, a.shape[1], 16):
        total += a[:, k : k + 16] @ b[k : k + 16]
    return total


LESS = pytest.mark.parametrize("product", [products_of_10_bits, sums_in_fp16])
TERMS = pytest.mark.parametrize("terms", [16, 256, 4096])


def body(forward: str, **inputs: str) -> str:
    declared = "\n".join(f'  {name}: "float32{shape}"' for name, shape in inputs.items())
    return say(f"forward: {forward}", f"inputs:\n{declared}", "dims: {batch: 1..4}", "examples: {values: 1}")


def compute(monkeypatch: pytest.MonkeyPatch, outputs: Callable[[dict[str, Array]], Array]) -> None:
    """ONNX Runtime gives what ``outputs`` makes of the inputs, with its optimizer on or off."""
    for name in ("open_optimized", "open_unoptimized"):
        opener = altered(getattr(onnxruntime, name), lambda inputs, _: [outputs(inputs)])
        monkeypatch.setattr(onnxruntime, name, opener)


@TERMS
@LESS
def test_a_product_of_matrices(bench: Bench, monkeypatch: pytest.MonkeyPatch, product: Product, terms: int) -> None:
    compute(monkeypatch, lambda inputs: product(inputs["x"], inputs["y"]))
    record = bench.run(body("x @ y", x=f"[batch, {terms}]", y=f"[{terms}, 3]"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


@TERMS
@LESS
def test_a_layer_with_a_bias(bench: Bench, monkeypatch: pytest.MonkeyPatch, product: Product, terms: int) -> None:
    compute(monkeypatch, lambda inputs: product(inputs["x"], inputs["w"].T) + inputs["b"])
    record = bench.run(body("F.linear(x, w, b)", x=f"[batch, {terms}]", w=f"[3, {terms}]", b="[3]"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


@TERMS
def test_a_sum_in_fp16(bench: Bench, monkeypatch: pytest.MonkeyPatch, terms: int) -> None:
    compute(monkeypatch, lambda inputs: sums_in_fp16(inputs["x"], np.ones((terms, 1), np.float32))[:, 0])
    record = bench.run(body("x.sum(-1)", x=f"[batch, {terms}]"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


@TERMS
@LESS
def test_scores_of_attention(bench: Bench, monkeypatch: pytest.MonkeyPatch, product: Product, terms: int) -> None:
    def outputs(inputs: dict[str, Array]) -> Array:
        scores = product(inputs["x"], inputs["y"]) / np.float32(np.sqrt(terms))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(weights / weights.sum(-1, keepdims=True), np.float32)

    compute(monkeypatch, outputs)
    forward = f"torch.softmax(x @ y / {terms}**0.5, -1)"
    record = bench.run(body(forward, x=f"[batch, {terms}]", y=f"[{terms}, 3]"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


@TERMS
@pytest.mark.parametrize("product", [sums_in_another_order, sums_by_blocks, sums_one_by_one])
def test_float32_in_another_order_is_sound(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, product: Product, terms: int
) -> None:
    compute(monkeypatch, lambda inputs: product(inputs["x"], inputs["y"]))
    record = bench.run(body("x @ y", x=f"[batch, {terms}]", y=f"[{terms}, 3]"))
    assert verdict(record) == PASSED


@pytest.mark.parametrize("seed", range(6))
def test_long_sums_that_are_added_up_one_by_one_are_sound(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The noise floor counts what another order of a sum is off, and not the rounding of its result alone."""
    compute(monkeypatch, lambda inputs: sums_one_by_one(inputs["x"], inputs["y"]))
    (cell,) = (
        cell
        for cell in bench.cells(body("x @ y", x="[batch, 4096]", y="[4096, 3]") + "\nexport: {torchscript: [17]}")
        if (cell.check, cell.runtime) == ("accuracy", "onnxruntime")
    )
    record = bench.run_cell(cell, random=seed)
    assert verdict(record) == PASSED
    assert record.examples > 10 * record.ill_conditioned
