"""ONNX Runtime's graph optimizer pass by pass: sessions at one level of optimization, with passes switched off.

A pass is switched off by its name (``disabled_optimizers``); ONNX Runtime takes any name without a word, so that a
name says something only once it has changed what comes out.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from conformance.process.errors import attempt
from conformance.runtimes.onnxruntime import OnnxRuntimeSession, Optimizing

LEVELS = ("BASIC", "EXTENDED", "LAYOUT", "ALL")
"""The levels of optimization, each with the passes of those before it."""

RULES = (
    "EliminateIdentity", "EliminateSlice", "EliminateDropout", "UnsqueezeElimination", "ExpandElimination",
    "CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion",
    "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion",
    "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion", "LabelEncoderFusion", "ClipQuantRewrite",
    "ReluQuantRewrite",
)  # fmt: skip
"""The rules that the passes ``Level1_RuleBasedTransformer`` and ``Level2_RuleBasedTransformer`` apply: the log names
these two only, and each rule can be switched off like a pass. As ONNX Runtime 1.31 registers them
(``GenerateRewriteRules`` in its ``graph_transformer_utils.cc``)."""

_MODIFIED = re.compile(r"GraphTransformer (\S+) modified: ([01])")
_BY_RULES = re.compile(r"Level\d_RuleBasedTransformer")


@dataclass(frozen=True)
class Passes:
    """Read ONNX Runtime's log of the passes that it ran, in their order."""

    changed: tuple[str, ...]
    """The passes that changed the model; in place of one that applies rules, all rules."""
    all: tuple[str, ...]
    """All that were run, the rules among them."""


@contextlib.contextmanager
def open_at(
    model: Path, libraries: Sequence[str], config: Mapping[str, str], optimizing: Optimizing
) -> Iterator[OnnxRuntimeSession]:
    """The model optimized as ``optimizing`` says; raises what ONNX Runtime raises."""
    yield OnnxRuntimeSession(model, libraries, optimize=True, config=config, optimizing=optimizing)


def passes_of(model: Path, libraries: Sequence[str], config: Mapping[str, str], level: str) -> Passes:
    """The passes that ONNX Runtime runs on a model, by its log; none where that says nothing of them.

    Takes this process's standard error while the model is loaded, so ask in a process of its own
    (``process.worker.aside``).
    """
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            logging = Optimizing(level, log=True)
            attempt(partial(OnnxRuntimeSession, model, libraries, optimize=True, config=config, optimizing=logging))
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        log.seek(0)
        told = _MODIFIED.findall(log.read().decode("utf-8", "replace"))
    every = dict.fromkeys([name for name, _ in told])
    changed: dict[str, None] = {}
    for name, modified in told:
        if modified == "1":
            changed |= dict.fromkeys(RULES if _BY_RULES.fullmatch(name) else [name])
    return Passes(tuple(changed), (*every, *(RULES if any(map(_BY_RULES.fullmatch, every)) else ())))


def only(names: Collection[str], every: Sequence[str]) -> tuple[str, ...]:
    """Return what to switch off of all passes so that only some are left."""
    by_rules = any(name in RULES for name in names)
    return tuple(other for other in every if other not in names and not (by_rules and _BY_RULES.fullmatch(other)))
