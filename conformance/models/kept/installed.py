"""Tell the user's own Python from what is installed: by distributions, wherever these lie.

A folder of ``sys.path`` belongs to an installation if the metadata of a distribution lies in it: ``site-packages``
and ``dist-packages`` of any environment, of ``--user``, of ``pip install --target``, of Nix and of Bazel. A checkout
that is installed in editable mode has its metadata elsewhere, so that its files are the user's own; a folder on
``PYTHONPATH`` has none.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from conformance.case.files.python import search_roots
from conformance.process.worker.uses.whose import has_distributions
from conformance.results.records.environment import versions

_NAMES = ("site-packages", "dist-packages", "lib-dynload")
_ARCHIVES = (".zip", ".egg", ".whl", ".pex")


@cache
def is_installed(root: Path) -> bool:
    """Return whether the files of this folder of ``sys.path`` are installed: by a package manager, or with Python
    itself."""
    if root.name in _NAMES or root.suffix in _ARCHIVES:
        return True
    if os.path.realpath(root) in {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}:
        return True
    return has_distributions(str(root))


def python_below(folder: Path) -> Iterator[str]:
    """All Python below a folder, but no environment that lies there."""
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NAMES and not name.startswith(".")]
        yield from (f"{top}{os.sep}{name}" for name in files if name.endswith(".py") and not name.startswith("."))


def own_roots(folder: Path) -> list[Path]:
    """The folders of the user's own Python, for the cases of a folder: where these look for it (``search_roots``),
    and those of ``sys.path`` that are no installation."""
    found = dict.fromkeys([*search_roots(folder), *(Path(entry) for entry in sys.path if entry)])
    return [folder, *(root for root in found if root != folder and not is_installed(root))]


@cache
def hooked_root(package: str) -> Path | None:
    """The folder in which a package of the user's own lies that an import hook finds, as an editable installation may
    have it; None for any other. Nothing is imported."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):  # a broken package, or one that was made up as it ran
        return None
    if spec is None or spec.origin in (None, "built-in", "frozen"):
        return None
    file = Path(str(spec.origin))
    root = file.parent.parent if file.stem == "__init__" else file.parent
    return None if is_installed(root) else root


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """The versions of the distributions that packages come from, which are given by the names that are imported; but
    for those that every result depends on (``environment.versions``)."""
    wanted = {*packages} - sys.stdlib_module_names - versions().keys()
    if not wanted:
        return {}
    known = _distributions()
    names = {name for package in wanted for name in known.get(package, ())}
    return {name: importlib.metadata.version(name) for name in sorted(names)}


@cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def forget() -> None:
    """Forget what is known of installations, as where packages were installed or ``sys.path`` changed meanwhile."""
    for function in (is_installed, hooked_root, _distributions):
        function.cache_clear()
