"""A module that somebody has built already, in place of one that a case says how to build."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from conformance.case.files.copying import copied

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module


@dataclass(frozen=True)
class Pickled:
    """A module in a file, for a process of its own."""

    file: Path
    searched: tuple[str, ...]
    """``sys.path`` of the process that wrote it, on which the classes of its modules are found."""

    def module(self) -> Module:
        """Return the module, rebuilt; raise what unpickling raises."""
        with self._add_searched(), self.file.open("rb") as stream:
            module: Module = pickle.load(stream)
            return module

    @contextlib.contextmanager
    def _add_searched(self) -> Iterator[None]:
        before = sys.path.copy()
        sys.path += [entry for entry in self.searched if entry not in before]
        try:
            yield
        finally:
            sys.path[:] = before


@dataclass(frozen=True)
class ExportedProgramModule:
    """The module of a program that ``torch.export`` has saved in a file."""

    file: Path

    def module(self) -> Module:
        """Return the module, rebuilt; raise what loading raises."""
        import torch

        return module_of_program(torch.export.load(self.file))


def module_of_program(program: ExportedProgram) -> Module:
    """Return the module of an exported program, which has one mode and refuses to be set to another."""
    module = program.module()
    vars(module)["train"] = lambda mode=True: module  # of the object, before the method of its class
    return module


@dataclass(frozen=True, eq=False)
class Here:
    """A module of this process."""

    original: Module

    def module(self) -> Module:
        """Return a copy, so that the module itself stays as it is; raises what copying raises."""
        return copied(self.original)


Built: TypeAlias = Here | Pickled | ExportedProgramModule
"""A module that is there, as a cell gets it."""
