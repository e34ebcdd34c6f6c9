"""A case that is aligned, and what its answer says."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.front.commands.align.answer import align
from conformance.front.commands.align.question import AlignQuestion
from conformance.front.commands.align.table import AlignAnswer, Row
from tests.kit.cases import write_case
from tests.kit.networks import PYTHON


@dataclass
class Trial:
    """Cases, each in a folder of its own that all tests of it share, and the store that their models are in."""

    folder: Path
    store: Path

    def place(self, body: str) -> Path:
        """The folder of a case."""
        return self.folder / hashlib.sha256(body.encode()).hexdigest()[:12]

    def write(self, body: str) -> Path:
        return write_case(self.place(body), body, PYTHON)

    def __call__(self, body: str, **asked: Any) -> AlignAnswer:
        return align(AlignQuestion("planted", [self.write(body)], self.store, **asked))


def of_module(answer: AlignAnswer, module: str) -> list[Row]:
    """The values that a submodule computes itself."""
    return [row for row in answer.rows if (row.operator.module or "") == module]


def parting(answer: AlignAnswer) -> list[str]:
    """The submodules of the values that part, each once."""
    return [*dict.fromkeys(row.operator.module or "" for row in answer.rows if row.parts)]


def first(answer: AlignAnswer) -> str | None:
    """The submodule of the value that is marked as the first."""
    (marked,) = (row for row in answer.rows if row.first)
    return marked.operator.module


def said(answer: AlignAnswer) -> str:
    return "\n".join(answer.sentences)
