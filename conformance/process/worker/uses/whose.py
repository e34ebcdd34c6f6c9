"""Find out which file a path or a module stands for, and whose code that is.

Python's, that of an installed distribution, this package's, or the user's.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

from conformance import HOME as PACKAGE

_getcwd = os.getcwd


def absolute(path: Any) -> str:
    """Return a path as an absolute one, without asking for the working directory as code of a case does."""
    name = os.fsdecode(path)
    if not name.startswith(os.sep):
        name = os.path.join(_getcwd(), name)  # noqa: PTH118
    return os.path.normpath(name)


def source_of(file: str) -> str:
    """Return the source that a compiled file is made of, where it is there; any other file as it is."""
    if not file.endswith(".pyc"):
        return file
    try:
        source = importlib.util.source_from_cache(file)
    except (ValueError, NotImplementedError):
        return file
    return source if os.path.isfile(source) else file  # noqa: PTH113


def file_of(name: str) -> str | None:
    """Return the source of a module that is loaded; None for any other, and for one without a file."""
    return file_of_module(sys.modules.get(name))


def file_of_module(module: object) -> str | None:
    """Return the source of a module, from what it says of itself; its properties, which may import, are not asked."""
    said = getattr(module, "__dict__", None)
    file = said.get("__file__") if isinstance(said, dict) else None
    return source_of(file) if isinstance(file, str) else None


_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
HOME = str(PACKAGE)

PYTHON, INSTALLED, OWN, USER = range(4)
"""Whose code a file is: the standard library's, a distribution's, this package's, or the user's."""
SITES = ("site-packages", "dist-packages")

EVERYWHERE = frozenset({
    "torch", "torchvision", "torchgen", "numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "onnxsim",
    "onnxslim", "openvino", "tensorrt", "pycuda", "sympy", "mpmath", "hypothesis", "triton", "ml_dtypes", "google",
    "networkx", "tqdm",
})  # fmt: skip
"""Packages that cells use whatever their cases say."""

_kinds: dict[str, int] = {}
_sites: tuple[str, ...] = ()
_python: tuple[str, ...] = ()


def learn_places() -> None:
    """Find out where Python's library and the installed distributions lie."""
    global _sites, _python
    library = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    zipped = "python{}{}.zip".format(*sys.version_info)
    zips = {os.path.join(os.path.dirname(place), zipped) for place in library}  # noqa: PTH118, PTH120
    _python = (*(place + os.sep for place in library), *zips)
    _sites = tuple({os.path.realpath(place) + os.sep for place in sys.path if place and has_distributions(place)})


def kind_of(file: str) -> int:
    """Return whose code a file is: ``PYTHON``, ``INSTALLED``, ``OWN`` or ``USER``."""
    kind = _kinds.get(file)
    if kind is None:
        kind = _kinds[file] = _kind(file)
    return kind


def _kind(file: str) -> int:
    if file.startswith(("<", _HERE + os.sep)):  # what stands around a call is nobody's
        return PYTHON
    known = _kind_by_place(file)
    if known == USER:
        real = os.path.realpath(file)
        if real != file:
            return _kind_by_place(real)
    return known


def _kind_by_place(file: str) -> int:
    if file.startswith(HOME + os.sep):
        return OWN
    if file.startswith(_sites) or any(f"{os.sep}{name}{os.sep}" in file for name in SITES):
        return INSTALLED
    return PYTHON if file.startswith(_python) else USER


@cache
def is_base(file: str) -> bool:
    """Return whether a file is of what every cell uses, as Python, this package and ``EVERYWHERE`` are: it does not
    matter what it imports."""
    kind = kind_of(file)
    return kind in (PYTHON, OWN) or (kind == INSTALLED and package_of(file) in EVERYWHERE)


def is_site(place: str) -> bool:
    """Return whether distributions are installed in a folder."""
    return f"{place}{os.sep}" in _sites


def has_distributions(place: str) -> bool:
    """Return whether distributions are installed in a folder of ``sys.path``."""
    if os.path.basename(place) in SITES:  # noqa: PTH119
        return True
    try:
        with os.scandir(place) as entries:
            return any(entry.name.endswith(".dist-info") for entry in entries)
    except OSError:
        return False


def package_of(file: str) -> str:
    """Return the package or module that an installed file belongs to, by its place."""
    site = next((site for site in _sites if file.startswith(site)), None)
    if site is None:
        site = next(
            (f"{file.partition(part)[0]}{part}" for name in SITES if (part := f"{os.sep}{name}{os.sep}") in file), ""
        )
    return file[len(site) :].partition(os.sep)[0].partition(".")[0]


def has_module(place: str, name: str) -> bool:
    """Return whether a folder has a module or a package of that name, compiled ones too."""
    file = os.path.join(place, name)  # noqa: PTH118
    return any(os.path.lexists(f"{file}{ending}") for ending in ("", ".py", ".pyc", *EXTENSION_SUFFIXES))


def is_of_a_library(value: object) -> bool:
    """Return whether a function, a class or an object of a class is of Python or of a package that is installed."""
    name = str(value.__module__ if hasattr(value, "__qualname__") else type(value).__module__)
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    file = file_of(name)
    return file is not None and kind_of(file) != USER
