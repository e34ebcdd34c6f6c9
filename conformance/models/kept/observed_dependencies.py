"""The observed dependencies of a result, to be compared later with how things are then."""

from __future__ import annotations

import glob
import importlib.util
import locale
import os
import platform
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.models.kept import contents, lowering_functions, lowerings, packages
from conformance.models.kept.contents import of_text, short
from conformance.models.kept.fingerprint import change
from conformance.models.kept.lowering_functions import AS_IT_IS
from conformance.process.worker import uses
from conformance.results.records.processor import cpu

NOBODY = "*"
NOT_THERE = "not there"
CHANGED = "changed while it was used"
"""In place of a hash, which would not say what was read; equal to none."""
_FOLDER = "a folder"

FACTS: Mapping[str, Callable[[], object]] = {
    "cwd": os.getcwd,
    "host name": socket.gethostname,
    "cores": lambda: (os.cpu_count(), len(os.sched_getaffinity(0))),
    # os.uname, since platform keeps what it found; without the node, which is the host's name
    "platform": lambda: (*os.uname()[:1], *os.uname()[2:], platform.processor(), platform.libc_ver()),
    "locale": lambda: (locale.getlocale(), locale.getpreferredencoding(False)),
    "user": os.getuid,
    "cpu": cpu,
    "gpu": lambda: os.path.exists("/dev/nvidia0"),  # noqa: PTH110
}
"""What code may read of the host."""


@dataclass(frozen=True)
class Observed:
    """Everything that was used, each with a hash. Names of files are relative to the case's folder where they lie
    near it."""

    files: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By file its functions and constants that were used; such a file is not among ``files``."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Folders that were listed, and patterns of names, with the names."""
    missing: tuple[str, ...] = ()
    """Files that were looked for and not found."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """By folder the modules that would be imported from there if they were; those that nobody has by ``*``."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Distributions besides those that every cell uses."""
    lowerings: Mapping[str, str] = field(default_factory=dict)
    """By exporter what its lowerings register."""
    variables: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    """Facts of the host that were read."""
    fleeting: tuple[str, ...] = ()
    """What is another at each run, or cannot be observed: no result that depends on it is kept."""

    @property
    def lasts(self) -> bool:
        """Return whether a result that depends on all this may be kept.

        Nothing of it is another at each run, and nothing was changed while it was used.
        """
        return not self.fleeting and CHANGED not in {*self.files.values(), *self.folders.values()}

    def as_dict(self) -> dict[str, object]:
        """Return plain values, without what is empty."""
        known = {name: value for name, value in vars(self).items() if value}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}

    @classmethod
    def from_dict(cls, values: Any) -> Observed:
        """Return the inverse of ``as_dict``. TypeError, ValueError or AttributeError for anything else."""
        texts: dict[str, Any] = {name: tuple(map(str, values.get(name, ()))) for name in ("missing", "fleeting")}
        tables: dict[str, Any] = {
            name: {str(key): str(value) for key, value in values.get(name, {}).items()}
            for name in ("modules", *_TABLES)
        }
        inner = {
            str(file): {str(k): str(v) for k, v in known.items()} for file, known in values.get("parts", {}).items()
        }
        return cls(parts=inner, **tables, **texts)

    def and_also(self, other: Observed) -> Observed:
        """Return what both depend on."""
        tables: dict[str, Any] = {name: {**getattr(other, name), **getattr(self, name)} for name in _TABLES}
        files = tables["files"]
        merged = {
            file: {**other.parts.get(file, {}), **self.parts.get(file, {})} for file in {**other.parts, **self.parts}
        }
        return Observed(
            parts={file: known for file, known in merged.items() if file not in files},
            missing=tuple(sorted({*self.missing, *other.missing} - files.keys())),
            modules={
                place: " ".join(sorted({*self.modules.get(place, "").split(), *other.modules.get(place, "").split()}))
                for place in {**other.modules, **self.modules}
            },
            fleeting=tuple(sorted({*self.fleeting, *other.fleeting})),
            **tables,
        )

    def differences(self, now: Now) -> Iterator[str]:
        """Yield what is not as it was, one line each."""
        for name in self.fleeting:
            yield f"it depends on {name}, which is another at each run"
        for file, was in self.files.items():
            yield from _difference(file, was, now.file(file))
        for file, known in self.parts.items():
            if known.get(AS_IT_IS) != now.file(file):
                for part in known.keys() - {AS_IT_IS}:
                    yield from _difference(f"{file}: {part}", known[part], now.part(file, part))
        for folder, was in self.folders.items():
            if now.folder(folder) != was:
                yield f"{folder}: other files are there"
        yield from (f"{file} is there now" for file in self.missing if now.exists(file))
        for place, names in self.modules.items():
            found = [name for name in names.split() if now.module(place, name)]
            yield from (f"the module {name} is there now, and would be imported" for name in found)
        for name, was in self.packages.items():
            states = [None if state == NOT_THERE else state for state in (was, now.package(name))]
            yield from change(f"the package {name}", *states)
        for exporter, was in self.lowerings.items():
            if now.lowering(exporter) != was:
                yield f"what the lowerings of {exporter} register changed"
        for name, was in self.variables.items():
            if now.variable(name) != was:
                yield "the variables of the environment changed" if name == "*" else f"the variable {name} changed"
        yield from (f"the host's {name} is another" for name, was in self.host.items() if now.fact(name) != was)

    def holds(self, now: Now) -> bool:
        """Return whether all is as it was; not where that cannot be found out."""
        try:
            return next(self.differences(now), None) is None
        except (OSError, ValueError, NotImplementedError, RecursionError):
            return False


_TABLES = ("files", "folders", "packages", "lowerings", "variables", "host")
"""The fields of an ``Observed`` in which the later hash of a name is put in the place of the earlier one."""


def _difference(name: str, was: str, now: str) -> Iterator[str]:
    if was != now:
        yield f"{name} {'is gone' if now == NOT_THERE else 'is new' if was == NOT_THERE else 'changed'}"


@dataclass
class Now:
    """The present state of things, seen from the folder of a case; on another host by what that says of itself."""

    home: Path
    variables: Mapping[str, str] | None = None
    """The hashes of another host's variables; None for this process's own."""
    facts: Mapping[str, str] | None = None

    def place(self, name: str) -> str:
        """Return the path that a name of an ``Observed`` stands for."""
        first = name.partition("/")[0]
        if packages.is_lowering(name) and first in ("torch", "onnxscript"):
            return os.path.join(packages.root_of(first) or "", name)  # noqa: PTH118
        return os.path.normpath(os.path.join(self.home, name))  # noqa: PTH118

    def file(self, name: str) -> str:
        """Return the hash of a file, or of all files in a folder for ``folder/*``."""
        place = self.place(name)
        if name.endswith("/*"):
            return contents.below(place[:-2]) or NOT_THERE
        digest = contents.content(place)
        if os.path.islink(place):  # noqa: PTH114
            return of_text(f"{os.readlink(place)} {digest!r}")  # noqa: PTH115
        if digest is not None:
            return short(digest)
        return _FOLDER if os.path.isdir(place) else NOT_THERE  # noqa: PTH112

    def part(self, file: str, name: str) -> str:
        return lowering_functions.part_now(self.place(file), name) or NOT_THERE

    def folder(self, name: str) -> str:
        """Return the hash of the names in a folder, or of those that match a pattern."""
        place = self.place(name)
        if glob.has_magic(name) and not os.path.isdir(place):  # noqa: PTH112
            found = sorted(str(file.relative_to(self.home)) for file in self.home.glob(name))
            return of_text("\n".join(found))
        return contents.names_in(place) or NOT_THERE

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.place(name))

    def module(self, place: str, name: str) -> bool:
        """Return whether a folder has a module of that name; whether there is any for ``*``."""
        if place == NOBODY:
            try:
                return importlib.util.find_spec(name) is not None
            except (ImportError, ValueError):
                return False
        return uses.has_module(self.place(place), name)

    def package(self, name: str) -> str:
        return packages.now(name) or NOT_THERE

    def lowering(self, exporter: str) -> str:
        return lowerings.registrations(exporter)

    def variable(self, name: str) -> str:
        if self.variables is not None:
            return self.variables.get(name, NOT_THERE)
        return variable(name)

    def fact(self, name: str) -> str:
        if self.facts is not None:
            return self.facts.get(name, NOT_THERE)
        return fact(name)


def variable(name: str) -> str:
    """Return the hash of a variable of this process; of all of them for ``*``."""
    if name == "*":
        return of_text(
            repr(sorted((key, value) for key, value in os.environ.items() if not key.startswith("PYTEST_")))
        )
    value = os.environ.get(name)
    return NOT_THERE if value is None else of_text(value)


def fact(name: str) -> str:
    """Return the hash of a fact of this host."""
    return of_text(repr(FACTS[name]())) if name in FACTS else NOT_THERE
