"""The state of installed distributions: their files by the hashes in the wheel's RECORD.

A file whose size and times say that it is as it was installed counts by the hash in RECORD; any other is read. A
fresh installation of the same wheel has the same state, and an edited file has another.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from conformance.models.kept.contents import content, of_text, remembered
from conformance.models.kept.installed import is_installed
from conformance.process.worker.uses.first_states import SETTLED
from conformance.results.records.environment import versions

_NO_CODE = (".pyc", ".pyi", ".h", ".hpp", ".cuh", ".cmake", ".a")
"""Endings of files that no running code reads."""
_SLACK = 2.0
"""Seconds that an installation may go on after it has written RECORD."""
THIS = "onnx-export-conformance"
"""This package's own distribution, all of whose source counts by itself."""
LOWERINGS = (
    "torch/onnx/_internal/exporter/_torchlib/ops/", "torch/onnx/_internal/torchscript_exporter/symbolic_opset",
    "onnxscript/function_libs/torch_lib/ops/",
)  # fmt: skip
"""Where lowerings of operators lie, which count one by one (``models.kept.lowering_functions``)."""


def is_lowering(file: str) -> bool:
    """Return whether a file holds lowerings of an exporter's own."""
    return file.endswith(".py") and any(place in file for place in LOWERINGS) and not file.endswith("__init__.py")


def state(name: str, *, trusting: bool = False) -> str | None:
    """Return version and content of a distribution, in short; None where it is not installed.

    ``trusting``: of a file that was not changed after RECORD was written, RECORD's own hash counts.
    """
    known = _metadata(name)
    if known is None:
        return None
    version, folder = known
    return f"{version} {_content(folder, trusting)[:12]}"


@cache
def _content(folder: str, trusting: bool) -> str:
    """The hash of what a distribution's RECORD lists, as it is on disk."""
    record, root = os.path.join(folder, "RECORD"), os.path.dirname(folder)  # noqa: PTH118, PTH120
    try:
        written = os.stat(record).st_mtime + _SLACK if trusting else 0.0  # noqa: PTH116
        with open(record, encoding="utf-8", newline="") as stream:  # noqa: PTH123
            entries = sorted(csv.reader(stream))
    except (OSError, ValueError, csv.Error):
        return of_text("no RECORD")
    files = [_File(root, *(*entry, "", "", "")[:3]) for entry in entries if _counts(*(*entry, "", "")[:2])]

    def read() -> str:
        return of_text("\n".join(f"{file.name} {file.now(written)}" for file in files))

    latest = max((max(file.status.st_mtime_ns, file.status.st_ctime_ns) for file in files if file.status), default=0)
    if trusting or time.time_ns() - latest < SETTLED:
        return read()
    marks = "\n".join(f"{file.name} {file.said} {file.marks}" for file in files)
    return remembered(f"distribution {folder} {of_text(marks)}", read)


def _counts(name: str, said: str) -> bool:
    """Return whether a file that RECORD lists may decide on a result and is not looked at elsewhere."""
    if not said or name.endswith(_NO_CODE) or is_lowering(name):
        return False
    return not name.endswith(("/RECORD", "/INSTALLER", "/REQUESTED", "/direct_url.json"))


class _File:
    """A file of a distribution: as RECORD has it, and its status on disk."""

    def __init__(self, root: str, name: str, said: str, size: str) -> None:
        self.name, self.said, self._size = name, said, size
        self._path = os.path.join(root, name)  # noqa: PTH118
        self.status = _status(self._path)
        status = self.status
        self.marks = status and (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def now(self, written: float) -> str:
        """Return its hash: that of RECORD where it was not changed after ``written``, in seconds since the epoch."""
        if self.status is None:
            return "gone"
        if str(self.status.st_size) == self._size and max(self.status.st_mtime, self.status.st_ctime) <= written:
            return self.said
        read = content(self._path)
        return "" if read is None else "sha256=" + base64.urlsafe_b64encode(read).rstrip(b"=").decode()


def _status(path: str) -> os.stat_result | None:
    # of 10,000 files, none of which a case uses: a tenth of a second goes to noting them
    stat: Callable[[str], os.stat_result] = getattr(os.stat, "__wrapped__", os.stat)
    try:
        return stat(path)
    except OSError:
        return None


@cache
def _metadata(name: str) -> tuple[str, str] | None:
    try:
        found = importlib.metadata.distribution(name)
        return found.version, str(getattr(found, "_path", ""))
    except (importlib.metadata.PackageNotFoundError, OSError, KeyError, ValueError):
        return None


@cache
def base() -> Mapping[str, str]:
    """Return the states of the distributions that every cell uses: those whose versions are noted of each run, with
    all that these require."""
    names, waiting = dict[str, str](), [name for name in versions() if versions()[name] is not None]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        waiting += _required(THIS)
    while waiting:
        name = canonical(waiting.pop())
        known = None if name in names else state(name, trusting=True)
        if known is not None:
            names[name] = known
            waiting += _required(name)
    for package, name in _IMPORTED.items():
        place = root_of(package)
        folder = (_metadata(name) or ("", ""))[1]
        if place is not None and folder and os.path.realpath(place) != os.path.realpath(os.path.dirname(folder)):  # noqa: PTH120
            names[f"{place}/{package}"] = _tree(os.path.join(place, package))  # noqa: PTH118
    return dict(sorted(names.items()))


_IMPORTED = {name: name for name in ("torch", "torchvision", "onnx", "onnxruntime", "onnxscript", "numpy")}
"""Packages that may be imported from elsewhere than where their distribution lies, with that."""


def _tree(folder: str) -> str:
    """The hash of all Python of a package that is imported from another place than its distribution's."""
    digest = hashlib.sha256()
    for top, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(files):
            file = os.path.join(top, name)  # noqa: PTH118
            if name.endswith(".py") and not is_lowering(file):
                digest.update(f"{os.path.relpath(file, folder)} {content(file)!r}\n".encode())
    return digest.hexdigest()[:12]


@cache
def root_of(package: str) -> str | None:
    """Return the folder in which a package lies, which is not imported; None where it is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return os.path.dirname(places[0]) if places else None  # noqa: PTH120


@cache
def of_start() -> str:
    """Return a hash of what Python runs when it starts: ``sitecustomize``, and lines of ``.pth`` files."""
    digest = hashlib.sha256()
    for place in sys.path:
        try:
            names = sorted(os.listdir(place or "."))  # noqa: PTH208
        except OSError:
            continue
        pths = [name for name in names if name.endswith(".pth")] if _is_root(place) else []
        for name in (*pths, *(name for name in ("sitecustomize.py", "usercustomize.py") if name in names)):
            digest.update(f"{name} {content(os.path.join(place, name))!r}\n".encode())  # noqa: PTH118
    return digest.hexdigest()[:24]


def _is_root(place: str) -> bool:
    from pathlib import Path

    return bool(place) and is_installed(Path(place))


def _required(name: str) -> Iterator[str]:
    for line in importlib.metadata.distribution(name).requires or ():
        found = re.match(r"[\w.-]+", line)
        if found and "extra ==" not in line:
            yield found[0]


def canonical(name: str) -> str:
    """Return the name of a distribution as an index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def of_files(files: Iterable[str]) -> dict[str, str]:
    """Return the states of the distributions that installed files belong to, but for those that every cell uses; by
    its own path the content of a file that belongs to none."""
    places: dict[tuple[str, str], list[str]] = {}
    states: dict[str, str] = {}
    for file in files:
        root = _root_of(file)
        if root is None:
            continue
        first = os.path.relpath(file, root).partition(os.sep)[0]
        if file == root or first.endswith(".dist-info"):
            states[f"{root}{METADATA}"] = of_metadata(root)
        else:
            places.setdefault((root, first), []).append(file)
    for (root, first), found in places.items():
        names = _owners(root, first)
        known = {canonical(name) for name in names}
        known -= {*base(), THIS}
        states |= {name: now for name in known if (now := state(name)) is not None}
        if not names and first not in _IMPORTED:
            states |= {file: of_file(file) for file in found}
    return dict(sorted(states.items()))


METADATA = "/*.dist-info"


@cache
def of_metadata(root: str) -> str:
    """Return a hash of what the distributions in a folder say of themselves, entry points among it."""
    digest = hashlib.sha256()
    try:
        folders = sorted(name for name in os.listdir(root) if name.endswith((".dist-info", ".egg-info")))  # noqa: PTH208
    except OSError:
        return ""
    for folder in folders:
        for name in ("METADATA", "entry_points.txt"):
            digest.update(f"{folder} {name} {content(os.path.join(root, folder, name))!r}\n".encode())  # noqa: PTH118
    return digest.hexdigest()[:12]


def of_file(file: str) -> str:
    """Return the hash of an installed file that belongs to no distribution, in short."""
    return (content(file) or b"").hex()[:12]


def now(name: str) -> str | None:
    """Return what ``of_files`` says of a name."""
    if name.endswith(METADATA):
        return of_metadata(name.removesuffix(METADATA))
    return of_file(name) if os.path.isabs(name) else state(name)  # noqa: PTH117


@cache
def _root_of(folder: str) -> str | None:
    """The folder of installed distributions in which a file or folder lies, or which it is."""
    parent = os.path.dirname(folder)  # noqa: PTH120
    above = None if parent == folder else _root_of(parent)
    if above is not None:
        return above
    return folder if os.path.basename(folder) in ("site-packages", "dist-packages") or folder in _roots() else None  # noqa: PTH119


def _roots() -> set[str]:
    from pathlib import Path

    return {entry for entry in sys.path if entry and is_installed(Path(entry))}


def _owners(root: str, first: str) -> tuple[str, ...]:
    """The distributions below a root that have files in its folder ``first``, or a file of that name."""
    if first.endswith(".dist-info"):
        return (first.removesuffix(".dist-info").rpartition("-")[0],)
    return _owners_below(root).get(first, ())


_FIRST = re.compile(rb"^([^/,\n]+)[/,]", re.MULTILINE)


@cache
def _owners_below(root: str) -> Mapping[str, tuple[str, ...]]:
    """By folder or file directly below a root: the distributions that have something there."""
    found: dict[str, tuple[str, ...]] = {}
    if not os.path.isdir(root):  # noqa: PTH112  # such as the archive of the standard library that sys.path begins with
        return found
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.endswith(".dist-info"):
                name = entry.name.removesuffix(".dist-info").rpartition("-")[0]
                try:
                    with open(os.path.join(entry.path, "RECORD"), "rb") as stream:  # noqa: PTH118, PTH123
                        text = stream.read()
                except OSError:
                    continue
                for first in {os.fsdecode(first) for first in _FIRST.findall(text)}:
                    found[first] = (*found.get(first, ()), name)
    return found


def read() -> None:
    """Find out what is asked of installations again and again, so that processes forked from this one know it."""
    base()
    for root in _roots():
        _owners_below(root)
