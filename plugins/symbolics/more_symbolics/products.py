"""Symbolics of products of vectors and matrices."""

from __future__ import annotations

from torch.onnx import symbolic_helper as helper

from more_symbolics.tensor import Tensor, joined, promoted, symbolic


def _blended(x: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """Return beta * x + alpha * product; x counts for nothing where beta is 0, even NaN."""
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return (x if beta == 1 else x * beta) + scaled


@symbolic()
def addmv(x: Tensor, matrix: Tensor, vector: Tensor, beta: float, alpha: float) -> Tensor:
    return _blended(x, matrix @ vector, beta, alpha)


@symbolic()
def addr(x: Tensor, one: Tensor, other: Tensor, beta: float, alpha: float) -> Tensor:
    x, one, other = promoted(x, one, other)
    return _blended(x, one.unsqueeze(1) * other.unsqueeze(0), beta, alpha)


@symbolic()
def addbmm(x: Tensor, one: Tensor, other: Tensor, beta: float, alpha: float) -> Tensor:
    return _blended(x, (one @ other).sum([0]), beta, alpha)


@symbolic()
def inner(x: Tensor, y: Tensor) -> Tensor:
    if not x.rank or not y.rank:
        return x * y
    rows, columns = (one.reshape(joined([one.constant([-1]), one.size(-1)], 0)) for one in (x, y))
    outer = joined([one.shape().slice(0, 0, -1) for one in (x, y)], 0)
    return (rows @ columns.transpose(0, 1)).reshape(outer)


@symbolic()
def linalg_multi_dot(tensors: list[Tensor]) -> Tensor:
    product = tensors[0]
    for one in tensors[1:]:
        product = product @ one
    return product


@symbolic()
def kron(x: Tensor, y: Tensor) -> Tensor:
    x, y = promoted(x, y)
    rank = max(x.rank, y.rank)
    x, y = x.at_least(rank), y.at_least(rank)
    if not rank:
        return x * y
    product = x.unsqueeze(*range(1, 2 * rank, 2)) * y.unsqueeze(*range(0, 2 * rank, 2))
    return product.reshape(x.shape() * y.shape())


@symbolic(11)
def linalg_matrix_power(x: Tensor, power: int) -> Tensor:
    """Return a power from 0 on; of others PyTorch inverts the matrix, for which ONNX has nothing."""
    if power < 0:
        helper._unimplemented("linalg_matrix_power", "negative powers need an inverse", x.value)
    if power == 0:
        numbers = x.numbered(-1)
        return numbers.unsqueeze(0).equals(numbers.unsqueeze(1)).to(x.dtype).expand_to(x)
    if power == 3:  # as PyTorch multiplies, which infinities show
        return (x @ x) @ x
    found = None
    while power:
        if power % 2:
            found = x if found is None else found @ x
        power //= 2
        x = x @ x if power else x
    assert found is not None
    return found.op("Identity")


@symbolic(11)
def linalg_vander(x: Tensor, count: int | None) -> Tensor:
    x = promoted(x)[0].at_least(1)
    powers = x.numbered(-1) if count is None else x.constant(list(range(count)))
    return x.unsqueeze(x.rank) ** powers.to(x.dtype)


@symbolic()
def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = (x.unsqueeze(x.rank - 1, x.rank) @ weight).squeeze(x.rank)
    found = (rows @ y.unsqueeze(y.rank)).squeeze(y.rank)
    return found if bias is None else found + bias
