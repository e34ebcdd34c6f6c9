"""Names of modules that a user's own file must not take from Python, from PyTorch and from this suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from conformance.process.errors import UserError

_NEEDED = frozenset(
    {"conformance", "hypothesis", "ml_dtypes", "numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "torch"}
)


def is_reserved(name: str) -> bool:
    """Return whether a module of that name is Python's own, or one that runs the cells."""
    return name in sys.stdlib_module_names or is_needed(name)


def is_needed(name: str) -> bool:
    """Return whether a module of that name, which is not Python's, runs the cells."""
    return name in _NEEDED


def names_of(folder: Path) -> list[str]:
    """Return the modules and packages that lie in a folder."""
    packages = (file.parent.name for file in folder.glob("*/__init__.py"))
    return [*(file.stem for file in folder.glob("*.py")), *packages]


def taken(file: Path) -> str:
    """Return what is said of a file or a package that has the name of a module which others need."""
    whose = "that this suite needs" if is_needed(file.stem) else "of Python"
    return f"{file} has the name of a module {whose}, which is used in its place: rename it"


def unhide() -> None:
    """Put the working directory, or the folder of the program, behind all else on ``sys.path`` where it has a file
    that hides a module which runs the cells.

    Raises UserError where the file is loaded already in place of that module.
    """
    for entry, names in [*_hiding()]:
        for name in names:
            file = getattr(sys.modules.get(name), "__file__", None) or ""
            if Path(file).is_relative_to(Path(entry).absolute()):
                raise UserError(f"{file} hides the module '{name}', which this suite needs: rename it")
        sys.path.remove(entry)
        sys.path.append(entry)


def _hiding() -> Iterator[tuple[str, list[str]]]:
    """Yield the entries of ``sys.path`` that hide modules which are installed elsewhere, and their names."""
    last = max((place for place, entry in enumerate(sys.path) if not _is_of_program(entry)), default=-1)
    for place, entry in enumerate(sys.path):
        if _is_of_program(entry) and place < last:
            names = {*names_of(Path(entry))} & (_NEEDED - {"conformance"})
            others = [Path(other) for other in sys.path if not _is_of_program(other)]
            hidden = [name for name in names if any((one / name).is_dir() for one in others)]
            if hidden:
                yield entry, hidden


def _is_of_program(entry: str) -> bool:
    return Path(entry).absolute() in (Path(sys.path[0]).absolute(), Path.cwd())
