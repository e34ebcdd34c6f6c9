"""The suite under another release of torch, in an environment that differs from the one at hand in torch alone."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from conformance.extras.versions import environments
from conformance.extras.versions.environments import Environment, Wanted, fitting
from conformance.process.disk.locks import InUse, exclusive
from conformance.process.errors import UserError

TORCH = "torch"
PACKAGES = {TORCH: TORCH}
LEAST = "2.9"
"""The earliest torch that the suite runs with (``pyproject.toml``)."""
ROOM = 9 * 10**9
"""Bytes that have to be free before torch is installed: 5.4 GB of packages, and their wheels on the way there."""
_COMPLETE = "complete.txt"
"""What an environment has, written when all of it is there; without this file it is half of an environment."""


def free_bytes(folder: Path) -> int:
    """Return the bytes that are free on the disk of a folder."""
    return shutil.disk_usage(folder).free


def made(
    wanted: Wanted,
    home: Path,
    tell: Callable[[str], object],
    *,
    here: Iterable[Distribution] | None = None,
    free: Callable[[Path], int] = free_bytes,
) -> Environment:
    """The environment of a release of torch below ``home``, or the one at hand where it has that release.

    All packages but torch, and those that torch brings, have the versions that they have here. Earlier environments
    of torch below ``home`` in which no suite runs are removed where the disk has no room for another. Raises
    UserError for a release that pip does not have for this Python or that is too old, and for a disk without room.

    ``here`` are the packages of the environment at hand, where they are not those of this process; ``free`` tells how
    many bytes are free on the disk of a folder.
    """
    release = _release(wanted)
    known: dict[str, Distribution] = {}
    for found in importlib.metadata.distributions() if here is None else here:
        known.setdefault(str(canonicalize_name(found.name)), found)  # the first on the path is what is imported
    if _public(release) == _public(known[TORCH].version):
        return Environment(wanted, Path(sys.executable), release)
    folder = home / f"{TORCH}-{release}-py{environments.PYTHON}"
    home.mkdir(parents=True, exist_ok=True)
    with exclusive(home / f"{folder.name}.lock"):
        python = folder / "bin" / "python"
        requirements = [f"{TORCH}==={release}", *_others(known, _public(release), tell)]
        if not _is_complete(folder, requirements):
            shutil.rmtree(folder, ignore_errors=True)
            _make_room(home, tell, free)
            tell(f"{TORCH} {release}: an environment is made in {folder}, of some 5 GB")
            try:
                environments.install(
                    environments.venv(folder), requirements, f"{TORCH} {release}", "--no-cache-dir", "--prefer-binary"
                )
                (folder / _COMPLETE).write_text("\n".join(requirements), encoding="utf-8")
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)  # half of 5 GB is of no use to anybody
                raise
        environments.add_this_package(python, TORCH)
    return Environment(wanted, python, release)


def suite_run(
    environment: Environment, report: Path, arguments: Sequence[str], tell: Callable[[str], object]
) -> Path:
    """The folder of the run that an environment makes of the suite with these arguments of ``pytest``; what pytest
    prints is kept beside it. Raises UserError where there is no run."""
    place = report / environment.folder
    log = place.with_suffix(f"{place.suffix}.txt")
    log.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)  # a run of another call would pass for this one's
    tell(f"{environment.name}: the suite runs; what it prints is in {log}")
    suite = [str(environment.python), "-m", "pytest", "-p", "conformance.plugin", "--pyargs", "conformance"]
    with log.open("w", encoding="utf-8") as out, _keep(environment):
        command = [*suite, "--report", str(place), *arguments]
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONNOUSERSITE": "1"}
        )
    if done.returncode not in (0, 1) or not place.is_dir():
        said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        errors = [line for line in said if line.startswith(("ERROR", "FAILED"))] or said[-1:] or ["nothing"]
        raise UserError(f"{environment.name}: pytest ended with {done.returncode} and said: {errors[0]}")
    return place


@contextlib.contextmanager
def _keep(environment: Environment) -> Iterator[None]:
    """Inside the block no other process removes the environment, if it is one that ``made`` has made."""
    folder = environment.python.parent.parent
    in_use = InUse(folder) if (folder / _COMPLETE).exists() else None
    if in_use is not None:
        in_use.share()
    try:
        if not environment.python.exists():
            text = "was removed by another process that needed the room; run this again"
            raise UserError(f"--exporter: the environment of {environment.name} {text}")
        yield
    finally:
        if in_use is not None:
            in_use.close()


def _release(wanted: Wanted) -> str:
    """The newest release of the version that is wanted."""
    releases = environments.available(TORCH)
    found = max(fitting(releases, wanted), default=None)
    if found is None:
        known = ", ".join(releases[-4:])
        raise UserError(
            f"--exporter: pip has no {wanted.requirement} for Python {environments.PYTHON}; it has {known}"
        )
    if Version(releases[found]) < Version(LEAST):
        raise UserError(f"--exporter: {TORCH} {releases[found]} is too old; the suite runs with {LEAST} and later")
    return releases[found]


def _public(release: str) -> str:
    return release.partition("+")[0]


def _is_complete(folder: Path, requirements: Sequence[str]) -> bool:
    try:
        return (folder / _COMPLETE).read_text(encoding="utf-8") == "\n".join(requirements)
    except OSError:
        return False


def _make_room(home: Path, tell: Callable[[str], object], free: Callable[[Path], int]) -> None:
    """Remove the environments of torch below ``home``, oldest first, until there is room for another. Those in which
    another process runs the suite stay."""
    kept = sorted(home.glob(f"{TORCH}-*/{_COMPLETE}"), key=lambda file: file.stat().st_mtime)
    while (room := free(home)) < ROOM:
        if not kept:
            raise UserError(
                f"--exporter: an environment of torch takes {ROOM / 1e9:.0f} GB; {room / 1e9:.1f} are free in {home}"
            )
        folder = kept.pop(0).parent
        in_use = InUse(folder)
        if in_use.alone():
            tell(f"{folder} is removed, to have room")
            shutil.rmtree(folder)
        in_use.close()


def _others(here: Mapping[str, Distribution], release: str, tell: Callable[[str], object]) -> list[str]:
    """Requirements for what is installed ``here`` beside torch, in the versions that are here.

    What torch requires is left to pip, and so is the version of a package that does not admit this release of torch.
    What was installed from a folder or a repository is told, and left.
    """
    theirs = _closure(here)
    requirements = []
    for name, found in sorted(here.items()):
        if name in theirs | {"pip", "onnx-export-conformance"}:
            continue
        if found.read_text("direct_url.json") is not None:
            tell(f"{name} is not taken along: it was installed from a folder or a repository")
            continue
        admits = all(need.specifier.contains(release) for need in _list_needs(found) if need.name == TORCH)
        requirements.append(f"{name}=={found.version}" if admits else name)
    return requirements


def _closure(here: Mapping[str, Distribution]) -> set[str]:
    """The names of torch and of all that it requires, directly or not; extras of these, such as the libraries of
    ``cuda-toolkit``, are among them."""
    names, ready = {TORCH}, [Requirement(TORCH)]
    while ready:
        wanting = ready.pop()
        found = here.get(canonicalize_name(wanting.name))
        for need in _list_needs(found, wanting.extras) if found else ():
            name = canonicalize_name(need.name)
            if name not in names or need.extras:
                ready.append(need)
            names.add(name)
    return names


def _list_needs(found: Distribution, extras: Collection[str] = ()) -> Iterator[Requirement]:
    """Find what a package requires here, with these extras."""
    for text in found.requires or ():
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield need
