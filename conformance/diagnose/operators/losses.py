"""How much noise a converted model has at each value of a captured program: where it loses most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.compare.noise import NOISE_LIMITS, Noise, NoiseLimit
from conformance.compare.tolerance import Subject, odd_shape
from conformance.diagnose.nodes.loss import sqnr
from conformance.diagnose.operators.captured_program import Operator, Program, array
from conformance.diagnose.operators.forced import tied
from conformance.process.arrays import Array
from conformance.results.records.words import base_of


@dataclass
class Loss:
    """A value of a program, and how far its tensor in the converted model is off."""

    operator: Operator
    tensor: str
    before: Sequence[Loss]
    """The nearest compared values that it is computed from; none where those are the model's inputs."""
    sqnr: float
    """In decibels; -inf where all is lost."""
    text: str | None
    """What is wrong, in words: a tensor that is not finite and should be, or an output below what is due."""
    drop: float = 0.0
    """How many decibels less than the worst of the values before."""


def losses(
    program: Program,
    inputs: Sequence[object],
    got: Mapping[str, Array],
    limits: Sequence[NoiseLimit],
    precision: str,
) -> list[Loss]:
    """Compare each value with its tensor in ``got``, in the order in which they are computed; ``limits`` are those
    of the outputs.

    Decibels beyond those that a runtime has to keep (``NoiseLimit.runtime``) count as just those: rounding alone,
    which every first layer has, is no drop.
    """
    most = NOISE_LIMITS[base_of(precision)].runtime
    due = dict(zip(program.outputs, limits, strict=False))
    found = list(_losses(program, _values(program, inputs, got), got, due))
    for loss in found:
        before = min((source.sqnr for source in loss.before), default=math.inf)
        if math.isfinite(loss.sqnr) and before > -math.inf:
            loss.drop = max(min(before, most) - min(loss.sqnr, most), 0.0)
    return found


def largest(found: Sequence[Loss]) -> Loss | None:
    """Return the first value that is lost whole, or else that with the largest drop; None where nothing drops."""
    lost = next((loss for loss in found if loss.text and loss.sqnr == -math.inf), None)
    return lost or max((loss for loss in found if loss.drop), key=lambda loss: loss.drop, default=None)


def _values(program: Program, inputs: Sequence[object], got: Mapping[str, Array]) -> dict[str, Array]:
    """Return what PyTorch computes for these tensors."""
    wanted: dict[str, Array] = {}

    def keep(name: str, value: object) -> None:
        for member, tensor in tied(program, name, value):
            right = array(member) if tensor in got else None
            if tensor is not None and right is not None:
                wanted.setdefault(tensor, np.array(right))  # a copy, as the next operator may work in place

    program.run(inputs, keep)
    return wanted


def _losses(
    program: Program, wanted: Mapping[str, Array], got: Mapping[str, Array], limits: Mapping[str | None, NoiseLimit]
) -> Iterator[Loss]:
    known: dict[str, Loss] = {}
    sources: dict[str, Sequence[Loss]] = {}
    for operator in program.operators:
        before = [*{loss.tensor: loss for name in operator.inputs for loss in sources.get(name, ())}.values()]
        for name in operator.outputs:
            here = [tensor for tensor in program.ties.get(name, ()) if tensor is not None and tensor in wanted]
            for tensor in here:
                if tensor not in known:
                    lost, text = judge_noise(got[tensor], wanted[tensor], limits.get(name))
                    known[tensor] = Loss(operator, tensor, before, lost, text)
                    yield known[tensor]
            sources[name] = [known[tensor] for tensor in here] or before


def judge_noise(got: Array, wanted: Array, limit: NoiseLimit | None) -> tuple[float, str | None]:
    """Return the SQNR of a tensor, and what is wrong with it."""
    odd = odd_shape(Subject(0), got.astype(wanted.dtype) if got.dtype.kind == wanted.dtype.kind else got, wanted)
    if odd is not None:
        return -math.inf, (odd.text or "").replace("output 0", "it")
    lost = ~np.isfinite(got) & np.isfinite(wanted) if wanted.dtype.kind == "f" else np.zeros(0, bool)
    if lost.any():
        most = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
        text = f"{int(lost.sum())} of {got.size} values are NaN or infinite; in PyTorch the largest is {most:.6g}"
        return -math.inf, text
    if limit is None:
        return sqnr([got], [wanted]), None
    noise = Noise(limit)
    noise.see(got, wanted)
    return sqnr([got], [wanted]), None if noise.within() else noise.text()
