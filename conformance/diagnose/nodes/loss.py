"""Measure where accuracy is lost: the same inputs through every stage, and how much noise each adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from conformance.compare.noise import decibels
from conformance.diagnose.nodes.other_runtime import ask
from conformance.process.arrays import Array, Inputs
from conformance.runtimes.registry import LITERAL

Loss = dict[str, float | str]
"""SQNR in decibels by stage, or the name of the error that it stops with; stages that a cell lacks are left out."""


def by_stage(
    wanted: Sequence[Array],
    exported: Path,
    converted: Path | None,
    runtime: str | None,
    libraries: Sequence[str],
    inputs: Inputs,
    output: int | None = None,
    config: Mapping[str, str] | None = None,
    meaning: str = LITERAL,
) -> Loss:
    """The noise that each stage adds to what it is given: export, conversion, optimizer, runtime.

    ``wanted`` are PyTorch's outputs; ``converted`` and ``runtime`` are None where there are none; ``config`` has ONNX
    Runtime's session options. With ``output`` the loss is that of this output alone. ``meaning`` is the runtime that
    computes what a model means, where the kernels of ``LITERAL`` do not.
    """
    loss: Loss = {}

    def run(stage: str, name: str, model: Path, before: Sequence[Array] | None) -> list[Array] | None:
        if before is None:
            return None
        asked = ask(name, model, libraries, inputs, config)
        if asked.outputs is None:
            loss[stage] = asked.error or "Unavailable"
            return None
        got = asked.outputs
        compared = slice(None) if output is None else slice(output, output + 1)
        loss[stage] = sqnr(got[compared], before[compared], with_specials=converted is None)
        return got

    literal = run("export", meaning, exported, wanted)
    model = exported
    if converted is not None:
        model = converted
        literal = run("conversion", LITERAL, converted, literal)
    if meaning != LITERAL:
        run("runtime", runtime or "onnxruntime", model, literal)
        return loss
    run("optimizer", "onnxruntime", model, literal)
    if runtime not in (None, "onnxruntime"):
        run("runtime", runtime or "", model, literal)
    return loss


def sqnr(got: Sequence[Array], wanted: Sequence[Array], *, with_specials: bool = False) -> float:
    """The SQNR in decibels of the output that is furthest off; integers count by their values, texts that
    differ as all noise. NaN and infinities that are not wanted are all noise (-inf); those that are wanted and
    missing are that ``with_specials`` only, since a model in 16 bits may have more of them than are due."""
    worst = math.inf
    for array, right in zip(got, wanted, strict=False):
        if array.shape != right.shape:
            return -math.inf
        if right.dtype.kind == "U":  # texts have no distance
            worst = worst if np.array_equal(array, right) else -math.inf
            continue
        values, signal = array.astype(np.float64), right.astype(np.float64)
        finite = np.isfinite(signal)
        if not np.isfinite(values[finite]).all():
            return -math.inf
        if with_specials and not np.array_equal(values[~finite], signal[~finite], equal_nan=True):
            return -math.inf
        finite &= np.isfinite(values)
        if not finite.any():
            continue
        error = float(np.mean(np.square(values[finite] - signal[finite])))
        worst = min(worst, decibels(float(np.mean(np.square(signal[finite]))), error))
    return worst
