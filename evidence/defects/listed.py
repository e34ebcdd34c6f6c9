"""The list of planted defects, and how one is written into the package."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

FILE, BLIND = (Path(__file__).with_name(f"{name}.yaml") for name in ("defects", "blind"))
"""The list, and defects that were chosen from the package alone: without a look at its tests, or at the list."""
PACKAGE = "conformance"
DEEPEST = 48
"""The deepest indentation of a text that is replaced, in spaces."""


class DoesNotApply(Exception):
    """The text that a defect replaces is not in its file, or several times. Remedy: correct ``there`` in the list."""


@dataclass(frozen=True)
class Defect:
    """A mistake that a person could have made in the package."""

    id: str
    file: str
    """Below ``conformance/``."""
    kind: str
    what: str
    """The mistake, in a sentence."""
    there: str
    """Text that the file has once; its lines are indented as in the file, less what the first of them has."""
    instead: str
    open: str = ""
    """Why no test finds it, where that is known."""
    blind: bool = False
    """Whether it is one of those that were chosen without a look at the tests."""

    @property
    def path(self) -> str:
        """The file, from the root of the repository."""
        return f"{PACKAGE}/{self.file}"

    def lines(self, text: str) -> range:
        """The numbers (from 1) of the lines of a file that the defect replaces; DoesNotApply where it cannot."""
        place, depth = self._place(text)
        first = text.count("\n", 0, place) + 1
        return range(first, first + self._indented(self.there, depth).count("\n") + 1)

    def applied(self, text: str) -> str:
        """The text of the file with the defect; DoesNotApply where it cannot be written into it."""
        place, depth = self._place(text)
        there, instead = (self._indented(part, depth) for part in (self.there, self.instead))
        return text[:place] + instead + text[place + len(there) :]

    def _place(self, text: str) -> tuple[int, int]:
        """Where the text begins that is replaced, and how deeply its later lines are indented."""
        several = "\n" in self.there
        found = {depth: self._indented(self.there, depth) for depth in (range(0, DEEPEST, 4) if several else (0,))}
        known = {depth: text.count(wanted) for depth, wanted in found.items() if wanted in text}
        if sum(known.values()) != 1:
            count = sum(known.values())
            raise DoesNotApply(f"{self.id}: {self.path} has the text {count} times:\n{self.there}")
        (depth,) = known
        return text.index(found[depth]), depth

    @staticmethod
    def _indented(part: str, depth: int) -> str:
        return textwrap.indent(part, " " * depth)[depth:] if part else part


def read(only: Collection[str] = ()) -> list[Defect]:
    """All defects, or those with the ids of ``only``, in the order of the list."""
    defects = [
        Defect(**entry, blind=file == BLIND)
        for file in (FILE, BLIND)
        for entry in YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    ]
    unknown = {*only} - {defect.id for defect in defects}
    if unknown:
        raise ValueError(f"no defect is called {', '.join(sorted(unknown))}")
    return [defect for defect in defects if not only or defect.id in only]
