"""Symbolics of operators of networks: losses, norms, gradients that are operators of their own, and resampling."""

from __future__ import annotations

import math

import torch

from more_symbolics.elementwise import log1p_of
from more_symbolics.reductions import norm_of
from more_symbolics.tensor import Tensor, Value, constant_of, joined, promoted, sizes_of, symbolic, where


def _reduced(losses: Tensor, reduction: int) -> Tensor:
    """Return losses as they are, their mean or their sum, as PyTorch numbers these."""
    return losses if reduction == 0 else losses.mean() if reduction == 1 else losses.sum()


@symbolic()
def l1_loss(x: Tensor, target: Tensor, reduction: int) -> Tensor:
    x, target = promoted(x, target)
    return _reduced((x - target).abs(), reduction)


@symbolic()
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    x, target = promoted(x, target)
    error = (x - target).abs()
    smooth = error if beta == 0 else where(error < beta, error * error * (0.5 / beta), error - 0.5 * beta)
    return _reduced(smooth, reduction)


@symbolic()
def huber_loss(x: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    x, target = promoted(x, target)
    error = (x - target).abs()
    losses = where(error > delta, (error - 0.5 * delta) * delta, error * error * 0.5)
    return _reduced(losses, reduction)


@symbolic()
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int) -> Tensor:
    x, target = promoted(x, target)
    return _reduced(log1p_of((-target * x).exp()), reduction)


@symbolic()
def margin_ranking_loss(x: Tensor, y: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
    x, y, target = promoted(x, y, target)
    return _reduced((-target * (x - y) + margin).largest_of(0.0), reduction)


@symbolic()
def hinge_embedding_loss(x: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
    x, target = promoted(x, target)
    far = where(target.equals(1.0), 0.0, (margin - x).largest_of(0.0))
    return _reduced(far + where(target.equals(-1.0), 0.0, x), reduction)


@symbolic()
def poisson_nll_loss(x: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    x, target = promoted(x, target)
    losses = x.exp() - target * x if log_input else x - target * (x + eps).log()
    if full:
        stirling = target * target.log() - target + (target * (2 * math.pi)).log() * 0.5
        losses = losses + where(target.at_most(1.0), 0.0, stirling)
    return _reduced(losses, reduction)


@symbolic()
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int) -> Tensor:
    """Return a cross entropy whose logarithms are at least -100, as PyTorch has it."""
    x, target = promoted(x, target)
    losses = (target - 1.0) * log1p_of(-x).largest_of(-100.0) - target * x.log().largest_of(-100.0)
    return _reduced(losses if weight is None else losses * weight, reduction)


@symbolic()
def triplet_margin_loss(
    anchor: Tensor, near: Tensor, far: Tensor, margin: float, p: float, eps: float, swap: bool, reduction: int
) -> Tensor:
    anchor, near, far = promoted(anchor, near, far)
    close, apart, other = (norm_of(one - two + eps, p, [-1]) for one, two in
                           ((anchor, near), (anchor, far), (near, far)))  # fmt: skip
    apart = apart.least_of(other) if swap else apart
    return _reduced((close - apart + margin).largest_of(0.0), reduction)


def _positive(x: Tensor) -> Tensor:
    """Return what is above zero, and zero for the rest, NaN too."""
    return where(x > 0.0, x, 0.0)


@symbolic(11)
def multi_margin_loss(
    x: Tensor, target: Tensor, p: int, margin: float, weight: Tensor | None, reduction: int
) -> Tensor:
    single = x.rank < 2
    x, target = (x.reshape([1, -1]), target.reshape([1])) if single else (x, target)
    classes = x.numbered(1).unsqueeze(0)
    chosen = target.unsqueeze(1)
    gap = _positive(x - x.op("GatherElements", chosen, axis_i=1) + margin)
    gap = gap if p == 1 else gap * gap
    gap = gap if weight is None else gap * weight.take(target, 0).unsqueeze(1)
    losses = where(classes.equals(chosen), 0.0, gap).sum([1]) / x.size(1).to(x.dtype)
    return losses.reshape([]) if single and reduction == 0 else _reduced(losses, reduction)


@symbolic(11)
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Compare each class that is a target, up to the first -1, with each that is none."""
    single = x.rank < 2
    x, target = (x.reshape([1, -1]), target.reshape([1, -1])) if single else (x, target)
    ended = (target < 0).to(torch.float32).op("CumSum", x.constant(1)) > 0.0
    named = where(ended, 0, target)
    classes = x.numbered(1).unsqueeze(0).unsqueeze(0)
    is_target = (named.unsqueeze(2).equals(classes) & ~ended.unsqueeze(2)).any([1], keep=True)
    own = x.op("GatherElements", named, axis_i=1).unsqueeze(2)
    gap = _positive(1.0 - (own - x.unsqueeze(1)))
    losses = where(is_target | ended.unsqueeze(2), 0.0, gap).sum([1, 2]) / x.size(1).to(x.dtype)
    return losses.reshape([]) if single and reduction == 0 else _reduced(losses, reduction)


# ---- norms and gradients ---------------------------------------------------------------------------------------


@symbolic()
def rms_norm(x: Tensor, sizes: list[int], weight: Tensor | None, eps: float | None) -> Tensor:
    axes = list(range(-len(sizes), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    normed = x / ((x * x).mean(axes, keep=True) + eps).sqrt()
    return normed if weight is None else normed * weight


@symbolic()
def _safe_softmax(x: Tensor, axis: int, dtype: Value) -> Tensor:
    """Return a softmax, zeros where all is minus infinity."""
    (x,) = promoted(x)
    if not x.rank:
        return where(x.equals(-math.inf), 0.0, where(x.isnan() | x.isinf(), math.nan, x.like(1.0)))
    hidden = x.reduce("ReduceMax", [axis], keep=True).equals(-math.inf) & ~x.isnan().any([axis], keep=True)
    largest = where(hidden, 0.0, x.reduce("ReduceMax", [axis], keep=True))
    powers = (x - largest).exp()
    return where(hidden, 0.0, powers / powers.sum([axis], keep=True))


@symbolic()
def _softmax_backward_data(gradient: Tensor, output: Tensor, axis: int, dtype: Value) -> Tensor:
    return output * (gradient - (gradient * output).sum([axis], keep=True))


@symbolic()
def native_dropout_backward(gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
    (gradient,) = promoted(gradient)
    return gradient * mask.to(gradient.dtype) * scale


# ---- resampling ------------------------------------------------------------------------------------------------


@symbolic(11)
def _upsample_nearest_exact1d(x: Tensor, sizes: Value, factors: Value) -> Tensor:
    return _resized(x, sizes, factors)


@symbolic(11)
def _upsample_nearest_exact2d(x: Tensor, sizes: Value, factors: Value) -> Tensor:
    return _resized(x, sizes, factors)


def _resized(x: Tensor, sizes: Value, factors: Value) -> Tensor:
    """Take the element in whose middle a point falls; halves belong to the one after."""
    given = [x.constant([], torch.float32), x.constant([], torch.float32)]
    if sizes is None:
        given[1] = x.constant([1.0, 1.0, *constant_of(factors)], torch.float32)
    else:
        given.append(joined([x.size(0), x.size(1), sizes_of(x, sizes)], 0))
    return x.op("Resize", *given, mode_s="nearest", coordinate_transformation_mode_s="half_pixel",
                nearest_mode_s="round_prefer_ceil")  # fmt: skip
