"""Explanations of a red cell that anybody can add: one file here, or a package of one's own.

An explanation is a function ``explain`` that takes a ``Question`` and returns a line of text, or None where it has
nothing to say. It decides nothing: statuses, faults and exit codes do not depend on it. Every module of this folder
is asked, and every function that an installed package names under the entry point group ``conformance.explanations``.

``Question`` with its public attributes and methods, the group's name and the signature of ``explain`` are public and
stable: they change with a new first number of the version alone, and the changelog says so. Nothing else of this
package is promised.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeAlias, TypeVar

from conformance.process.arrays import Array
from conformance.process.errors import attempt, or_else
from conformance.process.worker import aside

R = TypeVar("R")
GROUP = "conformance.explanations"
SECONDS = 40.0
"""The seconds that one call in another process may take."""
LONGEST = 500
"""Characters of an explanation; the rest is left out."""


@dataclass(frozen=True)
class Question:
    """A failing example of a cell that nobody declared to fail, and what may be asked about it."""

    case: str
    exporter: str
    """``torchscript``, ``dynamo``, or ``onnx`` for a file."""
    opset: int
    runtime: str
    """As case files name it, ``onnxruntime`` for one."""
    precision: str
    """``fp32``, ``fp16``, ``int8``, or a variant of them."""
    stage: str
    """The stage at which the cell failed: ``load``, ``run`` or ``compare``."""
    error: str
    """The name of the failure: ``WrongValue``, ``WrongNaN``, or that of an exception."""
    fault: str | None
    """The party at fault, as ``exporter`` or ``runtime``; None where it is open."""
    model: Path
    """The ONNX file that failed."""
    libraries: Sequence[str]
    """Files of custom operators that the model needs."""
    config: Mapping[str, str]
    """The session options of ONNX Runtime that the case sets."""
    inputs: Mapping[str, Array]
    """The inputs of the example, by the names that they have in the model."""
    wanted: Sequence[Array]
    """The right outputs, in the order of the model's outputs."""
    judge: Callable[[Sequence[Array]], bool] = field(repr=False)

    def is_right(self, outputs: Sequence[Array] | None) -> bool:
        """Return whether the cell would take these outputs for right; None is wrong."""
        return outputs is not None and self.judge(outputs)

    def run_apart(self, call: Callable[[], R]) -> R | None:
        """Return what ``call`` gives in a process of its own, which may crash or hang; None where it gives nothing.

        Modules may be imported and options set there: nothing of it reaches this process. Arrays come back, as all
        that can be pickled does.
        """
        return or_else(None, lambda: aside.ask(call, SECONDS))


Explain: TypeAlias = Callable[[Question], str | None]


def explanations() -> Iterator[tuple[str, Callable[[], Explain]]]:
    """Yield the explanations by name, each with what loads it: those of this folder, then those of other packages."""
    for found in pkgutil.iter_modules(__path__, f"{__name__}."):
        yield found.name.rpartition(".")[2], partial(_of_module, found.name)
    for entry in entry_points(group=GROUP):
        yield entry.name, entry.load


def _of_module(name: str) -> Explain:
    own: Explain = importlib.import_module(name).explain
    return own


def explain(question: Question) -> list[dict[str, str]]:
    """Return what the explanations say, in the fields of ``Record.explained``.

    One that raises has an ``error`` in place of a ``text``, and keeps nobody from another's answer.
    """

    def ask(load: Callable[[], Explain]) -> str | None:
        return load()(question)

    told = []
    for name, load in explanations():
        text = attempt(partial(ask, load))
        if isinstance(text, Exception):
            told.append({"by": name, "error": f"{type(text).__name__}: {text}"[:LONGEST]})
        elif text:
            told.append({"by": name, "text": str(text)[:LONGEST]})
    return told
