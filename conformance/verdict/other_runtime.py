"""Asking another runtime about an example, in a process of its own: where it crashes or hangs, its answer is lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.arrays import Array
from conformance.errors import Unavailable
from conformance.records.record import Answer, Witness
from conformance.runtimes import opener, registry
from conformance.worker import aside

SECONDS = 40.0
"""How long a runtime may take for one answer; a cell has 300 by default."""


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
) -> Asked:
    """Return what a runtime computes of a model, whatever that does to the process that computes it."""

    entry = registry.named(runtime)

    def question() -> Asked:
        why_not = entry.no_witness
        reason = registry.function(why_not)(model, inputs) if why_not else None
        if reason is not None:
            return Asked(None, "abstains", reason=reason)
        os.environ.update(entry.witness_environment)  # of this process, which has no other question
        try:
            with opener(runtime, config=config)(model, libraries) as session:
                return Asked(session.run(inputs))
        except (Unavailable, ImportError) as reason:
            return Asked(None, "abstains", reason=str(reason))
        except Exception as error:
            return Asked(None, "stops", type(error).__name__)

    asked = answered(question)
    if entry.imports and asked.outputs is not None:  # which shows that importing it does no harm
        with contextlib.suppress(Exception):
            registry.function(entry.imports)()
    return asked


def answered(question: Callable[[], Asked]) -> Asked:
    """The answer to a question that is asked in a process of its own."""
    try:
        return aside.ask(question, SECONDS)
    except aside.Lost as how:
        return Asked(None, "lost", str(how))
    except Exception as error:  # in what asks, which must not be another failure of the cell
        return Asked(None, "lost", type(error).__name__)
