"""The lowerings that an export calls: which functions of torchlib, of ``torch.onnx`` and of a case's translations."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache, partial
from types import ModuleType

from conformance.models.kept.contents import content, of_text, remembered
from conformance.models.kept.lowering_functions import LOADED, WHOLE, parts_of, read
from conformance.models.kept.packages import is_lowering, root_of
from conformance.process.errors import attempt

FOLDERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "torchscript": (("torch", "onnx/_internal/torchscript_exporter"),),
    "dynamo": (("torch", "onnx/_internal/exporter/_torchlib/ops"), ("onnxscript", "function_libs/torch_lib/ops")),
}
"""By exporter the packages with lowerings, and the folders in these."""
_REGISTRATION = "torch.onnx._internal.torchscript_exporter.registration"
_DISPATCHING = "torch.onnx._internal.exporter._dispatching"

Called = set[tuple[str, str]]
"""Files and the names of functions in them."""


@contextlib.contextmanager
def noting(case: Hashable, exporter: str) -> Iterator[None]:
    """Inside the block note the lowerings that exports of a case by an exporter look up, and so call."""
    called = _called.setdefault((case, exporter), set())

    def of_group(original: Callable[..., object], group: object, *arguments: object) -> object:
        return _noted(original(group, *arguments), called)

    def of_dispatch(original: Callable[..., object], *arguments: object, **keywords: object) -> object:
        found = original(*arguments, **keywords)
        _noted(found[0] if isinstance(found, tuple) else found, called)
        return found

    group = getattr(_module(_REGISTRATION, exporter == "torchscript"), "_SymbolicFunctionGroup", None)
    dispatching = _module(_DISPATCHING, exporter == "dynamo")
    with _wrapped(group, "get", of_group), _wrapped(dispatching, "dispatch", of_dispatch):
        yield


def _module(name: str, wanted: bool) -> ModuleType | None:
    with contextlib.suppress(ImportError):
        return importlib.import_module(name) if wanted else None
    return None


@contextlib.contextmanager
def _wrapped(owner: object, name: str, function: Callable[..., object]) -> Iterator[None]:
    original = None if owner is None else vars(owner).get(name)
    if original is None:
        yield
        return

    def wrapper(*arguments: object, **keywords: object) -> object:
        return function(original, *arguments, **keywords)

    setattr(owner, name, wrapper)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _noted(function: object, called: Called) -> object:
    inner = function
    for _ in range(16):
        deeper = (
            getattr(inner, "__wrapped__", None) or getattr(inner, "func", None) or getattr(inner, "function", None)
        )
        if deeper is None or not callable(deeper):
            break
        inner = deeper
    code = getattr(inner, "__code__", None)
    if code is not None:
        called.add(
            (code.co_filename, code.co_qualname.partition(".")[0] if hasattr(code, "co_qualname") else code.co_name)
        )
    return function


_called: dict[Hashable, Called] = {}


def called_by(case: Hashable, exporter: str) -> Called:
    """Return what the exports of a case by an exporter have called in this process."""
    return _called.get((case, exporter), set())


@cache
def registrations(exporter: str) -> str:
    """Return a hash of all that an exporter's lowerings register, and under which conditions."""
    files: dict[str, str] = {}
    for package, folder in FOLDERS.get(exporter, ()):
        place = os.path.join(root_of(package) or "", package, folder)  # noqa: PTH118
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(place))  # noqa: PTH208
            found = [os.path.join(place, name) for name in names]  # noqa: PTH118
            files |= {file: f"{package}/{folder}/{os.path.basename(file)}" for file in found if is_lowering(file)}  # noqa: PTH119
    state = of_text(" ".join(f"{name} {content(file)!r}" for file, name in files.items()))

    def made() -> str:
        sources = {name: read(file) for file, name in files.items()}
        return of_text("\n".join(f"{name} {source.part(LOADED) or source.whole}" for name, source in sources.items()))

    return remembered(f"registrations {exporter} {state}", made)


def read_lowerings() -> None:
    """Parse the lowerings of all exporters once, for all processes with this store: it takes half a second."""
    for exporter in FOLDERS:
        attempt(partial(registrations, exporter))


def parts(called: Called) -> dict[str, dict[str, str]]:
    """Return by file the parts of lowerings that were called, with those that these use in other such files."""
    key = frozenset(called)
    then, found = _parts.get(key, ({}, {}))
    if not then or any(content(file) != digest for file, digest in then.items()):
        found = _parts_now(called)
        _parts[key] = {file: content(file) for file in found}, found
    return found


_parts: dict[frozenset[tuple[str, str]], tuple[dict[str, bytes | None], dict[str, dict[str, str]]]] = {}
"""By what was called the contents of all files that counted, and the parts."""


def _parts_now(called: Called) -> dict[str, dict[str, str]]:
    wanted: dict[str, set[str]] = {}
    waiting = [(file, name) for file, name in called if is_lowering(file)]
    while waiting:
        file, name = waiting.pop()
        names = wanted.setdefault(file, set())
        if name in names:
            continue
        with contextlib.suppress(OSError):
            source = read(file)
            closure = source.closure([name])
            new = closure - names
            names |= new
            for dotted in source.taken(new):
                other, inside = _loaded(dotted, file)
                if other is not None and is_lowering(other):
                    waiting.append((other, inside or WHOLE))
    found = {}
    for file, names in wanted.items():
        with contextlib.suppress(OSError):
            found[file] = parts_of(file, names)
    return found


def _loaded(dotted: str, beside: str) -> tuple[str | None, str | None]:
    """Return the file of the module that is loaded and nearest to what a dotted name in the file ``beside`` names,
    and the name in it; without one where the module itself is named, or all that it has."""
    if dotted.startswith("."):
        owner = next((known for known in list(sys.modules.values()) if _file(known) == beside), None)
        try:
            dotted = importlib.util.resolve_name(dotted, getattr(owner, "__package__", None))
        except (ImportError, ValueError):
            return None, None
    words = dotted.split(".")
    for end in range(len(words), 0, -1):
        module = sys.modules.get(".".join(words[:end]))
        if module is not None:
            inside = words[end] if end < len(words) else None
            return _file(module), None if inside == "*" else inside
    return None, None


def _file(module: ModuleType | None) -> str | None:
    said = getattr(module, "__dict__", None)
    return said.get("__file__") if isinstance(said, dict) else None
