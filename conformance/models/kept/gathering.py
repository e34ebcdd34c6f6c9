"""Gather what the current case has used from what was noted in its process."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from conformance.case.files.declaration import Case
from conformance.case.files.python import search_roots
from conformance.models.kept import contents, lowering_functions, lowerings, packages
from conformance.models.kept.dependency_files import prefixes
from conformance.models.kept.installed import own_roots
from conformance.models.kept.inventory import Named, named
from conformance.models.kept.observed_dependencies import CHANGED, NOBODY, Now, Observed, fact, variable
from conformance.process.errors import or_else
from conformance.process.worker import scratch, uses
from conformance.results.records.words import Exporter

MOST = 256
"""Files of one folder that are listed one by one; of more the folder counts, with all files in it."""
_BUILT_IN = frozenset(sys.builtin_module_names)

_rests: dict[tuple[Path, str, Exporter | None], Observed] = {}
"""By case and exporter, what results depend on that were taken from an earlier run."""


def keep_in(folder: Path | None) -> None:
    """Keep what takes long to find out of files in a folder, for other processes; None keeps it in this one."""
    contents.keep_in(folder)
    lowering_functions.keep_in(folder)


def rest_on(case: Case, exporter: Exporter | None, known: Observed) -> None:
    """Note what a result depends on that was taken from an earlier run; a case's later results rest on it."""
    key = (case.file, case.name, exporter)
    before = _rests.get(key)
    _rests[key] = known if before is None else before.and_also(known)


def note_named(case: Case) -> None:
    """Note the state of the files that a case names before any of it runs: compiled code may read them unseen."""
    home = case.folder.resolve()
    mentions = list(named(case))
    for file in _named_data(mentions, home):
        uses.note_file(file)
    for mention in mentions:
        if mention.pattern:
            uses.note_folder(str(home / mention.text))


def observe(case: Case, exporter: Exporter | None, ignored: Collection[Path] = ()) -> Observed | None:
    """Return what the current case has used in this process and in results that were kept, as far as it matters to
    cells of an exporter; of the case alone for None. None where that cannot be found out, as where its folder is
    gone.

    ``ignored`` are folders of this package's own, such as the store.
    """
    return or_else(None, lambda: _observe(case, exporter, ignored))  # a cell must not fail for the names of files


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
    mentions = list(named(case, exporter=exporter or "none"))
    roots = {file for mention in mentions for file in _modules_of(mention.text, home)}
    used = uses.so_far(roots, lambda file: file in shared or file not in others or file in own)
    imported = {other for file in used.files if uses.kind_of(file) == uses.USER for other in uses.imported_by(file)}
    apart = {file: names for file, names in own.items() if file in used.files and file not in shared | imported}
    known = _Gathering(home, ignored)
    for file, names in apart.items():
        known.part(file, names)
    for file in used.files - apart.keys():
        known.file(file)
    for file in _named_data(mentions, home):
        known.file(file)
    for mention in mentions:
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
    files = _folded({name: now.file(name) for name in sorted(known.files)}, now)
    folders = {name: now.folder(name) for name in sorted(known.folders)}
    # after all hashes are taken, since a file may be written to while they are
    used_files = (*known.files, *known.parts, *known.missing)
    changed = known.changed | {name for name in used_files if uses.has_changed(now.place(name))}
    return Observed(
        files=files | dict.fromkeys(changed, CHANGED),
        parts={**inner, **{name: parts for name, parts in known.parts.items() if name not in changed}},
        folders={name: CHANGED if uses.has_other_names(now.place(name)) else held for name, held in folders.items()},
        missing=tuple(sorted(known.missing - changed)),
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
            own.setdefault(file, set()).add(rest.partition(".")[0] or lowering_functions.WHOLE)
        else:
            others.add(file)
    return own, others, shared


def _modules_of(text: str, home: Path) -> Iterator[str]:
    """The files of the modules that ``file.name`` or ``package.module.name`` goes through."""
    for name in prefixes(text):
        below = [str(root / name.replace(".", os.sep)) for root in search_roots(home)]
        places = (f"{place}{ending}" for place in below for ending in (".py", f"{os.sep}__init__.py"))
        file = next(filter(os.path.isfile, places), None) or uses.file_of(name)
        if file is not None:
            yield file


def _named_data(mentions: Iterable[Named], home: Path) -> Iterator[str]:
    """Yield the files that a case names, which code that cannot be observed may read."""
    for mention in mentions:
        if mention.pattern:
            yield from map(str, sorted(home.glob(mention.text)))
        elif (home / mention.text).is_file() and not mention.text.endswith(".py"):
            yield str(home / mention.text)


@cache
def _roots(home: Path) -> tuple[str, ...]:
    return tuple(f"{os.path.realpath(root)}{os.sep}" for root in own_roots(home))


@cache
def _real(folder: str) -> str:
    """Return a folder of this package's own as the start of what lies in it."""
    return f"{os.path.realpath(folder)}{os.sep}"


class _Gathering:
    """Names of what was used, in the making."""

    def __init__(self, home: Path, ignored: Collection[Path]) -> None:
        self._home, self._inside = str(home), f"{home}{os.sep}"
        self._near = (self._inside, *_roots(home))
        ours = [*map(str, ignored), *filter(None, [scratch.given()])]
        self._ignored = tuple(map(_real, ours))
        self._aside = _real(tempfile.gettempdir())
        self._now = Now(home)
        self.files: set[str] = set()
        self.folders: set[str] = set()
        self.missing: set[str] = set()
        self.modules: dict[str, set[str]] = {}
        self.parts: dict[str, dict[str, str]] = {}
        self.changed: set[str] = set()

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
            self.parts[self.label(path)] = lowering_functions.parts_of(path, names)
        except OSError:
            self.file(path)

    def module(self, entry: uses.Import) -> None:
        """Add the places at which a module would have been found first."""
        leaf = entry.name.rpartition(".")[2]
        if entry.file == "" and entry.name in _BUILT_IN:
            return
        for place in entry.places:
            hiding = os.path.join(place, leaf)  # noqa: PTH118
            if self.counts(hiding) and not self._now.module(place, leaf):
                self.modules.setdefault(self.label(place), set()).add(leaf)
            elif self.counts(hiding):
                self.changed.add(self.label(hiding))  # it was made since, and is what a next run imports
        if entry.file is None and "." not in entry.name:
            self.modules.setdefault(NOBODY, set()).add(entry.name)


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
