"""Which cells depend on what differs from an earlier revision of the repository, and what that is.

Compared is what a case says and what its Python is made of, definition by definition, so that editing one symbolic
of a file selects the cases that use it and no other. Reads the earlier revision out of git; runs none of its code.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.case import Case
from conformance.casefile import case_files, load
from conformance.errors import CaseFileError
from conformance.plan import Cell, Selection, plan
from conformance.slices import Slices
from conformance.source import forward_names

_NOT_THE_VERDICT = {"about", "tags", "export"}
"""Of what a case says: words for the reader; ``export`` is looked at by exporter."""

_PINS = ("constraints.txt", "requirements.txt")

_PACKAGE = Path(__file__).parent.resolve()


@dataclass
class Changes:
    """What differs, by cell id; ``gone`` are cells that only the earlier revision has."""

    revision: str
    reasons: dict[str, list[str]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)

    def lines(self, total: int) -> Iterator[str]:
        """How many cells, and for what; the reasons of most cells first."""
        yield f"{len(self.reasons)} of {total} cells depend on what changed since {self.revision}"
        by_reason: dict[str, int] = {}
        for reasons in self.reasons.values():
            for reason in reasons:
                by_reason[reason] = by_reason.get(reason, 0) + 1
        for reason, count in sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))[:20]:
            yield f"  {count:>5}  {reason}"
        if len(by_reason) > 20:
            yield f"         and {len(by_reason) - 20} more reasons"
        if self.gone:
            yield f"  {len(self.gone)} cells are no longer there, such as {self.gone[0]}"


def changed_since(revision: str, paths: Sequence[Path], cells: Sequence[Cell], selection: Selection) -> Changes:
    """The cells of ``cells`` (read from the case files ``paths``) that differ since a git revision, with the reasons.

    ``selection`` chose ``cells`` among all that there are.

    Raises ValueError where there is no repository or no such revision.
    """
    top = Path(_git(paths[0] if paths[0].is_dir() else paths[0].parent, "rev-parse", "--show-toplevel")).resolve()
    _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    with tempfile.TemporaryDirectory() as name:
        before = Path(name).resolve()
        folders = {path.resolve() if path.is_dir() else path.resolve().parent for path in paths}
        _extract(top, revision, [_inside(folder, top) for folder in folders], before)
        everywhere = [*_pins(before, top), *_harness(before, top)]
        old_cells, unreadable = _read(before, [before / _inside(path.resolve(), top) for path in paths])
        old, new = _Contents(before, top, before), _Contents(top, top, before)
        found = Changes(revision)
        for cell in cells:
            reasons = list(everywhere)
            earlier = old_cells.get(cell.id)
            if earlier is None:
                file = _inside(cell.case.file.resolve(), top).as_posix()
                reasons.append(f"{file} could not be read then" if file in unreadable else "not there then")
            else:
                reasons += _differences(old(earlier), new(cell))
            if reasons:
                found.reasons[cell.id] = reasons
        now = {cell.id for cell in cells}
        were = {name for name, cell in old_cells.items() if selection.keeps(cell)}
        found.gone = [] if unreadable else sorted(were - now)
        return found


# ---- the earlier revision -----------------------------------------------------------------------------------


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        if "not a git repository" in done.stderr:
            raise ValueError(f"{folder} is in no git repository")
        words = done.stderr.strip().splitlines()
        raise ValueError(words[-1] if words else f"git knows no revision '{arguments[-1].partition('^')[0]}'")
    return done.stdout.strip()


def _extract(top: Path, revision: str, folders: Sequence[Path], target: Path) -> None:
    """The revision's Python, pins, and all that lies in the folders of cases."""
    done = subprocess.run(
        ["git", "-C", str(top), "archive", "--format=tar", revision], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            place = Path(member.name)
            wanted = place.suffix == ".py" or place.name in _PINS or any(place.is_relative_to(one) for one in folders)
            if wanted and member.isfile():
                archive.extract(member, target, filter="data")


def _inside(path: Path, top: Path) -> Path:
    try:
        return path.relative_to(top)
    except ValueError:
        raise ValueError(f"{path} is not in the repository {top}") from None


def _read(before: Path, paths: Iterable[Path]) -> tuple[dict[str, Cell], set[str]]:
    """The cells of the earlier revision by id, and its files that could not be read."""
    cells: dict[str, Cell] = {}
    unreadable: set[str] = set()
    for path in paths:
        if not path.exists():
            continue
        for file in case_files([path]):
            try:
                for case in load(file):
                    cells.update((cell.id, cell) for cell in plan(case))
            except CaseFileError:
                unreadable.add(file.relative_to(before).as_posix())
    return cells, unreadable


def _pins(before: Path, top: Path) -> Iterator[str]:
    """Versions that are pinned otherwise than then: everything may depend on them."""
    for name in _PINS:
        old, new = _versions(before / name), _versions(top / name)
        for package in sorted(old.keys() | new.keys()):
            if old.get(package) != new.get(package):
                yield f"{name}: {package} {old.get(package, 'not pinned')} -> {new.get(package, 'not pinned')}"


def _versions(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    lines = (line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    return {name.strip(): version.strip() for name, _, version in (line.partition("==") for line in lines if line)}


def _harness(before: Path, top: Path) -> Iterator[str]:
    """Files of this package that differ, where it lies in the same repository."""
    if not _PACKAGE.is_relative_to(top):
        return
    here = _PACKAGE.relative_to(top)
    for file in sorted({*_python(before / here), *_python(_PACKAGE)}):
        if _bytes(before / here / file) != _bytes(_PACKAGE / file):
            yield f"the harness: {file.as_posix()}"


def _python(folder: Path) -> Iterator[Path]:
    return (file.relative_to(folder) for file in folder.rglob("*.py"))


def _bytes(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


# ---- what a cell is made of ---------------------------------------------------------------------------------


class _Contents:
    """What cells of one revision depend on: labels with a text that changes when that does."""

    def __init__(self, root: Path, top: Path, before: Path) -> None:
        own = [Path(entry).resolve() for entry in sys.path if entry]
        # A module of the repository is looked for where it lay then; the others are the same for both.
        inside = [root / entry.relative_to(top) for entry in own if entry.is_relative_to(top) and _is_own(entry)]
        self._slices = Slices(inside)
        self._kept: dict[tuple[Path, str, str], dict[str, str]] = {}

    def __call__(self, cell: Cell) -> dict[str, str]:
        key = (cell.case.file, cell.case.name, cell.exporter)
        if key not in self._kept:
            self._kept[key] = {**self._said(cell.case, cell.exporter), **self._python(cell.case, cell.exporter)}
        return self._kept[key]

    def _said(self, case: Case, exporter: str) -> dict[str, str]:
        says: dict[str, Any] = case.says.model_dump(mode="json", fallback=str, exclude=_NOT_THE_VERDICT)
        found = {f"the case's {key}": repr(value) for key, value in says.items()}
        found["the case's with"] = repr(sorted(case.arguments.items(), key=str))
        target = case.says.export.exporters[exporter].model_dump(mode="json", fallback=str, exclude={"opsets"})  # type: ignore[index]
        for key, value in target.items():
            if isinstance(value, Mapping) and key in ("symbolics", "registers", "translations"):
                found |= {f"{key} of {operator}": repr(one) for operator, one in value.items()}
            else:
                found[f"{exporter}'s {key}"] = repr(value)
        return found

    def _python(self, case: Case, exporter: str) -> dict[str, str]:
        says, folder = case.says, case.folder.resolve()
        target = says.export.exporters[exporter]  # type: ignore[index]
        dotted = [says.module, says.prepare, says.draw, *says.libraries, *says.tensorrt.plugins]
        dotted += [one.values.python for one in says.inputs.values() if one.values]
        dotted += [settings.calibration.data for settings in says.precisions.values()]
        dotted += [*target.own_code().values(), *target.own_code(), *forward_names(says.forward)]
        found: dict[str, str] = {}
        for name in dict.fromkeys(name for name in dotted if name):
            found |= self._slices.parts(folder, name)
            for file in folder.glob(name):  # a library, or calibration data
                found[name] = str(_sha(file))
        for pattern in says.depends:
            for file in sorted(folder.glob(pattern)):
                found[file.relative_to(folder).as_posix()] = str(_sha(file))
        return found


def _is_own(entry: Path) -> bool:
    roots = (sys.prefix, sys.base_prefix)
    return not any(entry.is_relative_to(Path(root).resolve()) for root in roots)


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
