"""The files that cases need on another machine: sent by their contents, laid out as they lie here.

On a worker they lie below a folder of the run, each at the path that it has here, and cells run in the folder in
which the run was started. What records say of files is then the same as without a cluster, but for that folder, which
is taken out of their texts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.process.disk.whole_files import replacing

if TYPE_CHECKING:  # a Dask worker reads no cases
    from conformance.case.files.declaration import Case
    from conformance.models.kept.dependency_files import Needs


@dataclass(frozen=True)
class Freight:
    """Hold what a case needs besides packages."""

    digests: Mapping[str, str]
    """The SHA-256 of each file, by its absolute path here."""
    places: Mapping[str, Path]
    """Where the contents can be read, by digest."""


def files_of(case: Case, needs: Needs) -> Freight:
    """The files of a case. What lies in the folder of its case file by way of a link lies there without one
    afterwards; of a folder that it names, all files. OSError for a file that cannot be read."""
    folder = case.folder.absolute()
    real = folder.resolve()
    digests, places = {}, {}
    listed = (below for file in needs.files for below in (sorted(file.rglob("*")) if file.is_dir() else [file]))
    for file in (case.file, *(file for file in listed if file.is_file())):
        path = file.absolute()
        if path.is_relative_to(real):
            path = folder / path.relative_to(real)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        digests[str(path)], places[digest] = digest, path
    return Freight(digests, places)


def below(root: Path, path: str | Path) -> Path:
    """Return where a file of that absolute path lies below the folder of a run."""
    return root / str(path).lstrip(os.sep)


def lay_out(root: Path, digests: Mapping[str, str], contents: Callable[[str], bytes]) -> None:
    """Write the files that are not there; ``contents`` gives them by their digests. OSError where one cannot be
    written: no part of it is left then."""
    for path, digest in digests.items():
        file = below(root, path)
        if file.exists():
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as stream:
            stream.write(contents(digest))


def moved(case: Case, root: Path) -> Case:
    """The case as it lies below the folder of a run."""
    return dataclasses.replace(case, file=below(root, case.file.absolute()))


def retold(value: object, names: Sequence[tuple[str, str]]) -> Any:
    """Plain data in which each first text is replaced by the second."""
    if isinstance(value, str):
        for before, after in names:
            value = value.replace(before, after)
        return value
    if isinstance(value, Mapping):
        return {retold(key, names): retold(entry, names) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(retold(entry, names) for entry in value)
    return value
