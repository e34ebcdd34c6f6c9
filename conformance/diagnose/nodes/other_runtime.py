"""Asking another runtime about an example, in a process of its own: where it crashes or hangs, its answer is lost."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.diagnose.search import Asking
from conformance.process.arrays import Array
from conformance.process.errors import Unavailable, attempt, or_else
from conformance.process.worker import aside
from conformance.results.records.record import Answer, Witness
from conformance.runtimes import Session, opener, registry

SECONDS = 40.0
"""How long a runtime may take for one answer; a cell has 300 by default."""
KEPT_BYTES = 2**26
"""Outputs of answers that this process keeps for cells that ask the same, and the most bytes of a model in such a
question."""
_known: dict[object, Asked] = {}


@dataclass(frozen=True)
class Asked:
    """The outputs of a runtime, or why there are none."""

    outputs: list[Array] | None = None
    answer: Answer = "runs"
    """``stops``, ``abstains`` or ``lost`` where there are no outputs."""
    error: str | None = None
    reason: str | None = None

    def witness(self, runtime: str) -> Witness:
        """The witness that it is where there are no outputs."""
        return Witness(runtime, self.answer, self.error, self.reason)


def ask(
    runtime: str,
    model: Path,
    libraries: Sequence[str],
    inputs: Mapping[str, Array],
    config: Mapping[str, str] | None = None,
    *,
    anyway: bool = False,
) -> Asked:
    """Return what a runtime computes of a model, whatever that does to the process that computes it; ``anyway`` also
    where it is no witness, as one that computes float64 in float32. What this process was told of the same model,
    inputs and options is not asked again."""
    entry = registry.named(runtime)
    about = or_else(None, lambda: _same(runtime, model, libraries, inputs, config or {}, anyway))
    if about in _known:
        known = _known[about]
        return dataclasses.replace(known, outputs=known.outputs and [np.array(one) for one in known.outputs])

    def question() -> Asked:
        why_not = entry.no_witness
        reason = registry.function(why_not)(model, inputs) if why_not and not anyway else None
        if reason is not None:
            return Asked(None, "abstains", reason=reason)
        os.environ.update(entry.witness_environment)  # of this process, which has no other question
        return answer(lambda: opener(runtime, config=config)(model, libraries), inputs)

    asked = answered(question)
    imports = entry.imports
    if imports and asked.outputs is not None:  # which shows that importing it does no harm
        attempt(lambda: registry.function(imports)())
    if about is not None and asked.answer != "lost":
        _keep(about, asked)
    return asked


def _same(
    runtime: str, model: Path, libraries: Sequence[str], inputs: Mapping[str, Array], config: Mapping[str, str],
    anyway: bool,
) -> object:  # fmt: skip
    """Return what two questions have in common that are the same; None where a file beside the model, or its size,
    keeps that from being known."""
    if model.stat().st_size > KEPT_BYTES or libraries or b"location" in (data := model.read_bytes()):
        return None
    digest = hashlib.sha256(data)
    for name, array in inputs.items():
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return registry.function(registry.named(runtime).opens), runtime, digest.digest(), (*config.items(),), anyway


def _keep(about: object, asked: Asked) -> None:
    """Keep an answer, and forget the oldest where there is no room."""
    if _size(asked) <= KEPT_BYTES:
        _known[about] = dataclasses.replace(asked, outputs=asked.outputs and [np.array(one) for one in asked.outputs])
    while sum(map(_size, _known.values())) > KEPT_BYTES:
        del _known[next(iter(_known))]


def forget() -> None:
    """Forget all answers, as where a runtime has become another one."""
    _known.clear()


def _size(asked: Asked) -> int:
    return sum(one.nbytes for one in asked.outputs or ())


def answer(load: Callable[[], AbstractContextManager[Session]], inputs: Mapping[str, Array]) -> Asked:
    """Return what a runtime computes of a model that ``load`` gives it, or how it does not."""

    def outputs() -> list[Array]:
        with load() as session:
            return session.run(inputs)

    got = attempt(outputs)
    if isinstance(got, Unavailable | ImportError):
        return Asked(None, "abstains", reason=str(got))
    return Asked(None, "stops", type(got).__name__) if isinstance(got, Exception) else Asked(got)


def answered(question: Callable[[], Asked], ask: Asking = aside.ask) -> Asked:
    """The answer to a question that is asked in a process of its own, or where ``ask`` asks it."""
    asked = attempt(lambda: ask(question, SECONDS))
    if isinstance(asked, aside.Lost):
        return Asked(None, "lost", str(asked))
    # what is raised by asking must not be another failure of the cell
    return Asked(None, "lost", type(asked).__name__) if isinstance(asked, Exception) else asked
