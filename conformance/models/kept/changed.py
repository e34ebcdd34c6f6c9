"""Select the cells that depend on what differs from an earlier revision of the repository, with the reasons.

Compared is what a case says, and what its cells used in the last run, as that was observed. Of a cell that no run
has seen, source text says what it may use; that only selects cells, and keeps no result. Reads the earlier revision
out of git; runs none of its code.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from conformance.case.files.case_file import case_files, load
from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import Selection, cells_of
from conformance.case.plan.cell import Cell
from conformance.models.kept import fingerprint, pins
from conformance.models.kept.dependency_files import imported, is_data
from conformance.models.kept.inventory import named, texts
from conformance.models.kept.lowering_functions import AS_IT_IS, LOADED, WHOLE, parts_of
from conformance.models.kept.observed_dependencies import Now, Observed
from conformance.models.kept.results import Last
from conformance.process.disk.foreign_files import unpack
from conformance.process.errors import CaseFileError, UserError, attempt
from conformance.results.records.sanitize import shorten
from conformance.results.records.words import Exporter


@dataclass
class Changes:
    """The differences by cell id; ``gone`` are cells that only the earlier revision has."""

    revision: str
    reasons: dict[str, list[str]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)

    def lines(self, total: int) -> Iterator[str]:
        """Yield how many cells there are, and for which reasons; those of most cells first."""
        yield f"{len(self.reasons)} of {total} cells depend on what changed since {self.revision}"
        by_reason: dict[str, int] = {}
        for reasons in self.reasons.values():
            for reason in reasons:
                by_reason[reason] = by_reason.get(reason, 0) + 1
        ordered = sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))
        yield from shorten(
            [f"  {count:>5}  {reason}" for reason, count in ordered], 20, "         and {} more reasons"
        )
        if self.gone:
            yield f"  {len(self.gone)} cells are no longer there, such as {self.gone[0]}"


def changed_since(
    revision: str,
    paths: Sequence[Path],
    cells: Sequence[Cell],
    selection: Selection,
    last: Mapping[str, Last] | None = None,
) -> Changes:
    """The cells of ``cells`` (read from the case files ``paths``) that differ since a git revision, with the reasons.

    ``selection`` chose ``cells`` among all that there are; ``last`` is what is known of their last runs, by cell id.

    Raises UserError where there is no repository or no such revision.
    """
    beside = paths[0] if paths[0].is_dir() else paths[0].parent
    top = Path(os.fsdecode(_git(beside, "rev-parse", "--show-toplevel").removesuffix(b"\n"))).resolve()
    _check_revision(top, revision)
    with tempfile.TemporaryDirectory() as name:
        before = Path(name).resolve()
        folders = {path.resolve() if path.is_dir() else path.resolve().parent for path in paths}
        known = {cell.id: last[cell.id] for cell in cells if cell.id in last} if last else {}
        seen = [(cell, run.observed) for cell in cells if (run := known.get(cell.id)) and run.observed is not None]
        used = {Now(cell.case.folder.resolve()).place(name) for cell, observed in seen for name in _names(observed)}
        within = {Path(file).relative_to(top) for file in used if Path(file).is_relative_to(top)}
        _extract(top, revision, [_inside(folder, top) for folder in folders], within, before)
        everywhere = list(pins.differences(before, top, [_inside(folder, top) for folder in folders]))
        old_cells, unreadable = _read(before, [before / _inside(path.resolve(), top) for path in paths])
        old, new = _Contents(before, top), _Contents(top, top)
        since_last = _SinceLast()
        changes = Changes(revision)

        def compare(cell: Cell, earlier: Cell, reasons: list[str]) -> None:
            run = known.get(cell.id)
            reasons += _differences(old(earlier, run is None), new(cell, run is None))
            if run is not None and run.observed is not None:
                reasons += _since(run.observed, cell.case.folder.resolve(), top, before)
            if run is not None:
                reasons += since_last.conditions(cell, run)
            if run is not None and not reasons:
                reasons += since_last.used(cell, run)

        for cell in cells:
            reasons = list(everywhere)
            earlier = old_cells.get(cell.id)
            if earlier is None:
                file = _inside(cell.case.file.resolve(), top).as_posix()
                reasons.append(f"{file} could not be read then" if file in unreadable else "not there then")
            else:
                failed = attempt(partial(compare, cell, earlier, reasons))
                if isinstance(failed, Exception):  # such as a folder where a file should be; the cell says so itself
                    reasons.append(f"what it depends on cannot be read ({type(failed).__name__})")
            if reasons:
                changes.reasons[cell.id] = reasons
        now = {cell.id for cell in cells}
        were = {name for name, cell in old_cells.items() if selection.keeps(cell)}
        changes.gone = [] if unreadable else sorted(were - now)
        return changes


# ---- the earlier revision -----------------------------------------------------------------------------------


def _git(folder: Path, *arguments: str) -> bytes:
    """Return what git prints; UserError in one line where it refuses, or is not there."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        raise UserError(f"git cannot be run ({error.strerror})") from None
    if done.returncode:
        words = " ".join(done.stderr.decode("utf-8", "replace").split())
        if "not a git repository" in words:
            raise UserError(f"{folder} is in no git repository")
        raise UserError(words.removeprefix("fatal: ") or f"git {arguments[0]} failed")
    return done.stdout


def _check_revision(top: Path, revision: str) -> None:
    try:
        _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except UserError:
        shallow = _git(top, "rev-parse", "--is-shallow-repository").strip() == b"true"
        hint = "; this is a shallow clone, which lacks most: fetch it, as with fetch-depth: 0" if shallow else ""
        raise UserError(f"git knows no revision '{revision}'{hint}") from None


def _extract(top: Path, revision: str, folders: Sequence[Path], used: Collection[Path], target: Path) -> None:
    """The revision's Python, pins, all that lies in the folders of cases, and what cells used in the last run."""
    around = [path for path in used if (top / path).is_dir()]

    def is_wanted(place: Path) -> bool:
        wanted = place.suffix == ".py" or pins.is_pin(place) or place in used
        return wanted or any(place.is_relative_to(folder) for folder in (*folders, *around))

    unpack(_git(top, "archive", "--format=tar", revision), target, is_wanted)


def _inside(path: Path, top: Path) -> Path:
    try:
        return path.relative_to(top)
    except ValueError:
        raise UserError(f"{path} is not in the repository {top}") from None


def _read(before: Path, paths: Iterable[Path]) -> tuple[dict[str, Cell], set[str]]:
    """The cells of the earlier revision by id, and its files that could not be read."""
    cells: dict[str, Cell] = {}
    unreadable: set[str] = set()
    for path in paths:
        if not path.exists():
            continue
        for file in case_files([path]):
            try:
                cells.update((cell.id, cell) for cell in cells_of(file, load(file)))
            except CaseFileError:
                unreadable.add(file.relative_to(before).as_posix())
    return cells, unreadable


# ---- what a cell is made of ---------------------------------------------------------------------------------


class _Contents:
    """What cells of one revision say, and what they may use by source text: by label, a text that changes with it."""

    def __init__(self, root: Path, top: Path) -> None:
        """``root`` is where the tree lies that is at ``top`` now."""
        self._root, self._top = root, top
        self._kept: dict[tuple[Path, str, str], dict[str, str]] = {}
        self._read: dict[tuple[Path, str, str], dict[str, str]] = {}

    def __call__(self, cell: Cell, reads: bool) -> dict[str, str]:
        """``reads``: also what source text says."""
        key = (cell.case.file, cell.case.name, cell.exporter)
        if key not in self._kept:
            self._kept[key] = texts(cell.case, cell.exporter)
        if reads and key not in self._read:
            self._read[key] = self._files(cell.case, cell.exporter)
        return {**self._kept[key], **(self._read[key] if reads else {})}

    def _files(self, case: Case, exporter: Exporter) -> dict[str, str]:
        """The functions that the case names, with what they use in their file, and files that are imported."""
        folder = case.folder.resolve()
        hashes: dict[str, str] = {}
        wanted: dict[Path, set[str]] = {}
        for mention in named(case, "verdict", exporter):
            if mention.pattern:
                matching = sorted(folder.glob(mention.text))
                hashes |= {file.relative_to(folder).as_posix(): _sha(file) for file in matching}
            elif is_data(folder / mention.text):
                hashes[mention.text] = _sha(folder / mention.text)
            else:
                first, _, rest = mention.text.partition(".")
                wanted.setdefault(folder / f"{first}.py", set()).add(rest.partition(".")[0] or WHOLE)
        names = [mention.text for mention in named(case, "verdict", exporter) if not mention.pattern]
        for path in imported(folder, names):
            place = self._root / path.relative_to(self._top) if path.is_relative_to(self._top) else path
            if place not in wanted:
                near = place.relative_to(folder) if place.is_relative_to(folder) else place.relative_to(self._root)
                hashes[near.as_posix()] = _sha(place)
        for file, parts in wanted.items():
            if file.is_file():
                label = file.relative_to(folder).as_posix()
                found = parts_of(str(file), parts).items()
                hashes |= {_label(label, name): text for name, text in found if name != AS_IT_IS}
        return hashes


def _label(file: str, part: str) -> str:
    return file if part == WHOLE else f"{file}, {part}" if part == LOADED else f"{file}: {part}"


# ---- what cells used in the last run ------------------------------------------------------------------------


@dataclass
class _Then(Now):
    """The earlier revision, seen from the folder that a case has now."""

    top: Path = field(default_factory=Path)
    before: Path = field(default_factory=Path)

    def place(self, name: str) -> str:
        place = Path(super().place(name))
        return str(self.before / place.relative_to(self.top)) if place.is_relative_to(self.top) else str(place)


def _names(known: Observed) -> Iterator[str]:
    yield from (name.removesuffix("/*") for name in known.files)
    yield from (*known.parts, *known.folders, *known.missing)


def _since(known: Observed, home: Path, top: Path, before: Path) -> Iterator[str]:
    """Yield what a cell used that has changed since the revision, or outside of the repository since the last run."""
    now, then = Now(home), _Then(home, top=top, before=before)

    def inside(name: str) -> bool:
        return Path(now.place(name)).is_relative_to(top)

    was = Observed(
        files={name: then.file(name) if inside(name) else text for name, text in known.files.items()},
        parts={
            name: {part: then.part(name, part) for part in found if part != AS_IT_IS} if inside(name) else found
            for name, found in known.parts.items()
        },
        folders={name: then.folder(name) if inside(name) else text for name, text in known.folders.items()},
        missing=tuple(name for name in known.missing if not (inside(name) and then.exists(name))),
        modules=known.modules,
        packages=known.packages, lowerings=known.lowerings, variables=known.variables, host=known.host,
        fleeting=known.fleeting,
    )  # fmt: skip
    yield from was.differences(now)
    yield from (f"{name} was taken out" for name in known.missing if inside(name) and then.exists(name))


class _SinceLast:
    """The differences from a cell's last run, whatever the revision has."""

    def __init__(self) -> None:
        self._conditions, self._hash = fingerprint.conditions(), fingerprint.conditions_hash()
        self._says: dict[tuple[Path, str, Exporter], str] = {}

    def conditions(self, cell: Cell, run: Last) -> list[str]:
        """Return how what every result depends on differs, and what the case says."""
        key = (cell.case.file, cell.case.name, cell.exporter)
        if key not in self._says:
            self._says[key] = fingerprint.says(cell)
        return list(run.differences(self._says[key], self._conditions, self._hash))

    def used(self, cell: Cell, run: Last) -> list[str]:
        """Return what the run used that is another now: a run may use other things where one of them differs."""
        differs = () if run.observed is None else run.observed.differences(Now(cell.case.folder.resolve()))
        return [f"{line} since its last run" for line in differs]


def _sha(file: Path) -> str:
    import hashlib

    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    reasons = []
    for label in sorted(old.keys() | new.keys()):
        if label not in new:
            reasons.append(f"{label} was taken out")
        elif label not in old:
            reasons.append(f"{label} is new")
        elif old[label] != new[label]:
            reasons.append(f"{label} changed")
    return reasons
