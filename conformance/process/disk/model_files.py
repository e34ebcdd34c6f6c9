"""Find ONNX files among paths, folders and patterns, and names that distinguish them."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance.process.errors import UserError

SUFFIX = ".onnx"
RECORDED = "test_data_set_"
"""How folders of recorded data beside a model are called, in ONNX's layout."""
_NAME = 100
"""The most bytes of a name: a case's has at most 128, with the number that distinguishes it."""


@dataclass
class FoundModels:
    """The models of some paths, in the order of the paths and sorted within a folder."""

    models: list[Path] = field(default_factory=list)
    others: int = 0
    """How many files of folders have another name than models."""
    first_other: Path | None = None


def find_models(paths: Sequence[Path]) -> FoundModels:
    """Return the files that are named, and those called ``.onnx`` in and below folders and among what a pattern fits.

    Folders whose name begins with a dot, such as the store, are passed over, and so is recorded data.

    Raises UserError for a path that is not there, a pattern that fits nothing, and where there is no model at all.
    """
    found, seen = FoundModels(), set[str]()
    for path in paths:
        for file, is_named in _files(path):
            if not is_named and file.suffix.lower() != SUFFIX:
                found.others += 1
                found.first_other = found.first_other or file
            elif (real := os.path.realpath(file)) not in seen:
                seen.add(real)
                found.models.append(file)
    if not found.models:
        what = f"{found.others:,} files of other names, such as {found.first_other}" if found.others else "no file"
        raise UserError(f"{', '.join(map(str, paths))}: there is no {SUFFIX} file: {what}")
    return found


def _files(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the files that a path stands for, each with whether it is named by the path itself."""
    if path.is_dir():
        yield from ((file, False) for file in _below(path))
    elif os.path.lexists(path) or not glob.has_magic(str(path)):
        yield path, True  # one that cannot be read is refused by who reads it
    else:
        try:
            fitting = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
        if not fitting:
            raise UserError(f"{path}: no file fits this pattern")
        for name in fitting:
            yield from ((file, False) for file in (_below(name) if name.is_dir() else [name]))


def _below(folder: Path) -> Iterator[Path]:
    for top, folders, names in walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", RECORDED))]
        yield from (Path(top, name) for name in sorted(names))


def walk(
    folder: Path, failed: Callable[[OSError], object] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """As ``os.walk``, also into links to folders, but into no folder twice, as where a link leads to one above it."""
    seen: set[str] = set()
    for top, folders, names in os.walk(folder, onerror=failed, followlinks=True):
        real = os.path.realpath(top)
        folders[:] = [] if real in seen else sorted(folders)
        if real not in seen:
            seen.add(real)
            yield top, folders, names


def distinct_names(files: Sequence[Path]) -> list[str]:
    """Return a name for each file: its own, with as many folders before it as distinguish it from the others."""
    names, parts = [""] * len(files), [(*file.absolute().parts[1:-1], file.stem) for file in files]
    left, length = list(range(len(files))), 1
    while left:
        for at in left:
            names[at] = _word("_".join(parts[at][-length:]))
        counts = Counter(names)
        left = [at for at in left if counts[names[at]] > 1 and length < len(parts[at])]
        length += 1
    used: set[str] = set()
    for at, name in enumerate(names):
        number = 1
        while names[at] in used:  # names that differ in signs alone, which no name of a case has
            number += 1
            names[at] = f"{name}_{number}"
        used.add(names[at])
    return names


def _word(text: str) -> str:
    """Write a text as the name of a case."""
    word = re.sub(r"\W", "_", text).encode()[-_NAME:].decode("utf-8", "ignore")
    return word if re.match(r"[A-Za-z_]", word) else f"model_{word}"
