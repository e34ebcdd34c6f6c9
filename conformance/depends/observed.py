"""What a result depends on, as it was observed: compared later with how things are then."""

from __future__ import annotations

import dataclasses
import glob
import importlib.util
import locale
import os
import platform
import socket
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from conformance.case.declaration import Case
from conformance.case.words import Exporter
from conformance.depends import contents, lowerings, packages, parts
from conformance.depends.contents import of_text, short
from conformance.depends.fingerprint import change
from conformance.depends.imports import prefixes
from conformance.depends.installed import own_roots
from conformance.depends.inventory import named
from conformance.depends.parts import AS_IT_IS
from conformance.records.processor import cpu
from conformance.worker import scratch, uses

MOST = 256
"""Files of one folder that are listed one by one; of more the folder counts, with all files in it."""
NOBODY = "*"
NOT_THERE = "not there"
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
    """What was used, each with a hash. Names of files are relative to the case's folder where they lie near it."""

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

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, without what is empty."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value}

    @classmethod
    def from_dict(cls, values: Any) -> Observed:
        """Return the inverse of ``as_dict``. TypeError, ValueError or AttributeError for anything else."""
        texts = {name: tuple(map(str, values.get(name, ()))) for name in ("missing", "fleeting")}
        tables = {
            name: {str(key): str(value) for key, value in values.get(name, {}).items()}
            for name in ("files", "folders", "modules", "packages", "lowerings", "variables", "host")
        }
        inner = {
            str(file): {str(k): str(v) for k, v in known.items()} for file, known in values.get("parts", {}).items()
        }
        return cls(parts=inner, **{**tables, **texts})  # type: ignore[arg-type]

    def and_also(self, other: Observed) -> Observed:
        """Return what both depend on."""
        files = {**other.files, **self.files}
        merged = {
            file: {**other.parts.get(file, {}), **self.parts.get(file, {})} for file in {**other.parts, **self.parts}
        }
        return Observed(
            files=files,
            parts={file: known for file, known in merged.items() if file not in files},
            folders={**other.folders, **self.folders},
            missing=tuple(sorted({*self.missing, *other.missing} - files.keys())),
            modules={
                place: " ".join(sorted({*self.modules.get(place, "").split(), *other.modules.get(place, "").split()}))
                for place in {**other.modules, **self.modules}
            },
            packages={**other.packages, **self.packages},
            lowerings={**other.lowerings, **self.lowerings},
            variables={**other.variables, **self.variables},
            host={**other.host, **self.host},
            fleeting=tuple(sorted({*self.fleeting, *other.fleeting})),
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


def _difference(name: str, was: str, now: str) -> Iterator[str]:
    if was != now:
        yield f"{name} {'is gone' if now == NOT_THERE else 'is new' if was == NOT_THERE else 'changed'}"


@dataclass
class Now:
    """How things are now, seen from the folder of a case; on another host by what that says of itself."""

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
        return parts.part_now(self.place(file), name) or NOT_THERE

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
        file = os.path.join(self.place(place), name)  # noqa: PTH118
        return any(os.path.lexists(f"{file}{ending}") for ending in ("", ".py", ".pyc", *EXTENSION_SUFFIXES))

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


_rests: dict[tuple[Path, str, Exporter | None], Observed] = {}
"""By case and exporter, what results depend on that were taken from an earlier run."""


def keep_in(folder: Path | None) -> None:
    """Keep what takes long to find out of files in a folder, for other processes; None keeps it in this one."""
    contents.keep_in(folder)
    parts.keep_in(folder)


def rest_on(case: Case, exporter: Exporter | None, known: Observed) -> None:
    """Note what a result depends on that was taken from an earlier run; a case's later results rest on it."""
    key = (case.file, case.name, exporter)
    before = _rests.get(key)
    _rests[key] = known if before is None else before.and_also(known)


def observe(case: Case, exporter: Exporter | None, ignored: Collection[Path] = ()) -> Observed | None:
    """Return what the current case has used in this process and in results that were kept, as far as it matters to
    cells of an exporter; of the case alone for None. None where that cannot be found out, as where its folder is
    gone.

    ``ignored`` are folders of this package's own, such as the store.
    """
    try:
        return _observe(case, exporter, ignored)
    except Exception:  # whatever files of the user's are called: a cell must not fail for that
        return None


def _observe(case: Case, exporter: Exporter | None, ignored: Collection[Path]) -> Observed:
    key = (case.file, case.name, exporter)
    rests = [_rests.get((case.file, case.name, of)) for of in dict.fromkeys((exporter, None))]
    called = 0 if exporter is None else len(lowerings.called_by((case.file, case.name), exporter))
    now = (uses.count(), called, *map(id, rests))
    if key in _last and _last[key][:2] == (now, case):
        return _last[key][2]
    found = _observed(case, exporter, ignored)
    for known in rests:
        found = found if known is None else found.and_also(known)
    _last[key] = now, case, found
    return found


_last: dict[tuple[Path, str, Exporter | None], tuple[object, Case, Observed]] = {}
"""What ``observe`` found last, and when nothing has to be looked at again."""


def _observed(case: Case, exporter: Exporter | None, ignored: Collection[Path]) -> Observed:
    home = case.folder.resolve()
    own, others, shared = _of_exporters(case, exporter, home)
    roots = {file for mention in named(case, exporter=exporter or "none") for file in _modules_of(mention.text, home)}
    used = uses.so_far(roots, lambda file: file in shared or file not in others or file in own)
    imported = {other for file in used.files if uses.kind_of(file) == uses.USER for other in uses.imported_by(file)}
    apart = {file: names for file, names in own.items() if file in used.files and file not in shared | imported}
    known = _Gathering(home, ignored)
    for file, names in apart.items():
        known.part(file, names)
    for file in used.files - apart.keys():
        known.file(file)
    for file in _named_data(case, exporter, home):
        known.file(file)
    for mention in named(case, exporter=exporter or "none"):
        if mention.pattern:
            known.folders.add(mention.text)
    for path in used.looked:
        known.file(path, status=True)
    known.folders |= {known.label(path) for path in used.listed if known.counts(path)}
    for entry in used.imports:
        known.module(entry)
    now = Now(home)
    called = lowerings.called_by((case.file, case.name), exporter) if exporter is not None else set()
    inner = {_installed_label(file): found for file, found in lowerings.parts(called).items()}
    return Observed(
        files=_folded({name: now.file(name) for name in sorted(known.files)}, now),
        parts={**inner, **known.parts},
        folders={name: now.folder(name) for name in sorted(known.folders)},
        missing=tuple(sorted(known.missing)),
        modules={place: " ".join(sorted(names)) for place, names in sorted(known.modules.items())},
        packages=packages.of_files(_installed(used)),
        lowerings={exporter: lowerings.registrations(exporter)} if called and exporter is not None else {},
        variables={name: variable(name) for name in sorted(used.variables)},
        host={name: fact(name) for name in sorted(used.facts)},
        fleeting=tuple(sorted(used.fleeting | (used.unseen if not case.says.depends else frozenset()))),
    )


def _of_exporters(
    case: Case, exporter: Exporter | None, home: Path
) -> tuple[dict[str, set[str]], set[str], set[str]]:
    """The case's files with code for this exporter alone, by the names of it; those for others; those for all."""
    own: dict[str, set[str]] = {}
    others: set[str] = set()
    shared: set[str] = set()
    for mention in named(case):
        first, _, rest = mention.text.partition(".")
        file = str(home / f"{first}.py")
        if not os.path.isfile(file):  # noqa: PTH113
            continue
        if not mention.key.startswith("export."):
            shared.add(file)
        elif mention.key == f"export.{exporter}":
            own.setdefault(file, set()).add(rest.partition(".")[0] or parts.WHOLE)
        else:
            others.add(file)
    return own, others, shared


def _modules_of(text: str, home: Path) -> Iterator[str]:
    """The files of the modules that ``file.name`` or ``package.module.name`` goes through."""
    for name in prefixes(text):
        beside = str(home / name.replace(".", os.sep))
        places = (f"{beside}.py", os.path.join(beside, "__init__.py"))  # noqa: PTH118
        file = next(filter(os.path.isfile, places), None) or uses.file_of(name)
        if file is not None:
            yield file


def _named_data(case: Case, exporter: Exporter | None, home: Path) -> Iterator[str]:
    """The files that a case names, which code that cannot be observed may read."""
    for mention in named(case, exporter=exporter or "none"):
        if mention.pattern:
            yield from map(str, sorted(home.glob(mention.text)))
        elif (home / mention.text).is_file() and not mention.text.endswith(".py"):
            yield str(home / mention.text)


@cache
def _roots() -> tuple[str, ...]:
    return tuple(f"{os.path.realpath(root)}{os.sep}" for root in own_roots())


class _Gathering:
    """Names of what was used, in the making."""

    def __init__(self, home: Path, ignored: Collection[Path]) -> None:
        self._home, self._inside = str(home), f"{home}{os.sep}"
        self._near = (self._inside, *_roots())
        ours = [*map(str, ignored), *filter(None, [scratch.given()])]
        self._ignored = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in ours)
        self._aside = f"{os.path.realpath(tempfile.gettempdir())}{os.sep}"
        self._now = Now(home)
        self.files: set[str] = set()
        self.folders: set[str] = set()
        self.missing: set[str] = set()
        self.modules: dict[str, set[str]] = {}
        self.parts: dict[str, dict[str, str]] = {}

    def label(self, path: str) -> str:
        near = path.startswith(self._near) or f"{path}{os.sep}" in self._near
        return os.path.relpath(path, self._home) if near else path

    def counts(self, path: str) -> bool:
        """Return whether a path is the user's."""
        return uses.kind_of(path) == uses.USER and not f"{path}{os.sep}".startswith(self._ignored)

    def file(self, path: str, *, status: bool = False) -> None:
        if not self.counts(path):
            return
        if self._inside.startswith(f"{path}{os.sep}"):
            return  # the folder of the case, or one above
        if os.path.isfile(path) or (status and (os.path.isdir(path) or os.path.islink(path))):  # noqa: PTH112, PTH113, PTH114
            self.files.add(self.label(path))
        elif not os.path.lexists(path) and (path.startswith(self._near) or not path.startswith(self._aside)):
            self.missing.add(self.label(path))

    def part(self, path: str, names: Iterable[str]) -> None:
        try:
            self.parts[self.label(path)] = parts.parts_of(path, names)
        except OSError:
            self.file(path)

    def module(self, entry: uses.Import) -> None:
        """Adds the places at which a module would have been found first."""
        leaf = entry.name.rpartition(".")[2]
        if entry.file == "" and entry.name in _BUILT_IN:
            return
        for place in entry.places:
            if entry.file and entry.file.startswith((f"{place}{os.sep}{leaf}{os.sep}", f"{place}{os.sep}{leaf}.")):
                return
            if self.counts(os.path.join(place, leaf)) and not self._now.module(place, leaf):  # noqa: PTH118
                self.modules.setdefault(self.label(place), set()).add(leaf)
        if entry.file is None and "." not in entry.name:
            self.modules.setdefault(NOBODY, set()).add(entry.name)


_BUILT_IN = frozenset(sys.builtin_module_names)


def _installed(used: uses.Used) -> Iterator[str]:
    """The files of distributions, and the folders of these that were listed or looked at."""
    yield from (file for file in used.files if uses.kind_of(file) == uses.INSTALLED)
    yield from (place for place in used.listed | used.looked if uses.is_site(place))


def _installed_label(file: str) -> str:
    """The path of a lowering below the folder that its package lies in."""
    for package in ("torch", "onnxscript"):
        root = packages.root_of(package)
        if root is not None and file.startswith(f"{root}{os.sep}{package}{os.sep}"):
            return os.path.relpath(file, root)
    return file


def _folded(files: dict[str, str], now: Now) -> dict[str, str]:
    """The files, with one entry for each folder that has very many of them."""
    by_folder: dict[str, list[str]] = {}
    for name in files:
        by_folder.setdefault(os.path.dirname(name), []).append(name)  # noqa: PTH120
    for folder, names in by_folder.items():
        if len(names) > MOST:
            for name in names:
                del files[name]
            files[f"{folder or '.'}/*"] = now.file(f"{folder or '.'}/*")
    return files
