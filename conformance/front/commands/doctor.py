"""``conformance doctor``: what a bug report should contain, without home paths and environment variables."""

from __future__ import annotations

import argparse
import ast
import platform
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from conformance import __version__
from conformance.front.commands import add_store
from conformance.results.records.sanitize import tell

_LABEL = 12
_OF_GPU = "an NVIDIA GPU with its driver, tensorrt for the driver's CUDA version, and cuda-python (docs/tensorrt.md)"


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser, "the store")


def run(given: argparse.Namespace) -> int:
    """0, or 1 where ONNX Runtime cannot run here."""
    runs = dict(_runtimes())
    for label, texts in (
        ("conformance", [f"{__version__}, Python {platform.python_version()}, {platform.platform()}"]),
        ("processor", [_processor()]),
        ("installed", _packages()),
        ("runtimes", _told(runs)),
        ("known", _known()),
        ("GPU", [_gpu()]),
        ("store", [_store(given.store)]),
        ("pytest", [*_plugins(), *_collisions(Path.cwd())]),
    ):
        for number, text in enumerate(texts):
            tell(f"{'' if number else label:<{_LABEL}} {text}".replace(str(Path.home()), "~"))
    return int(runs.get("onnxruntime") is not None)


def _processor() -> str:
    from conformance.results.records.processor import cpu

    known = cpu()
    return f"{known['name']}: {' '.join(known['instructions']) or 'instruction sets unknown'}"


def _packages() -> list[str]:
    from conformance.results.records.environment import versions

    known = versions()
    there = ", ".join(f"{name} {version}" for name, version in known.items() if version)
    lacking = ", ".join(name for name, version in known.items() if not version)
    return [there or "nothing that a run needs", *([f"not installed: {lacking}"] if lacking else [])]


def _runtimes() -> Iterator[tuple[str, str | None]]:
    """Yield the runtimes of cases, each with why this host cannot run it."""
    from conformance.process.errors import attempt
    from conformance.results.records.host_conditions import installed_version
    from conformance.runtimes import registry

    for name in registry.IN_CASES:
        entry = registry.named(name)
        lacking = [package for package in entry.packages[:1] if installed_version(package) is None]
        if lacking and not entry.absent:
            yield name, f"{lacking[0]} is not installed"
            continue
        why = attempt(partial(registry.absence, name))  # a driver may raise anything
        yield name, f"{type(why).__name__}: {why}" if isinstance(why, Exception) else why


def _told(runs: Mapping[str, str | None]) -> list[str]:
    """Return a line for each runtime, and one for all providers that this ONNX Runtime lacks."""
    from conformance.runtimes import registry

    providers = [name for name, why in runs.items() if why and registry.named(name).provider]
    here = {name: "parses and builds here" for name in runs if registry.named(name).only_builds}
    lines = [f"{name}: {why or here.get(name, 'runs here')}" for name, why in runs.items() if name not in providers]
    lines += registry.LEFT_OUT.values()
    return [*lines, *([f"not in this ONNX Runtime: {', '.join(providers)}"] if providers else [])]


def _known() -> list[str]:
    """Return the defects that are known of the installed versions, by package."""
    from conformance.results.records.known import by_package

    told = [f"{name}: {len(known)} defects: {', '.join(known)}" for name, known in by_package().items()]
    return told or ["nothing of these versions"]


def _gpu() -> str:
    from conformance.process.errors import or_else
    from conformance.results.records.environment import gpu

    known: Any = or_else(None, gpu)
    return f"none that TensorRT can use; it needs {_OF_GPU}" if not known else str(known.get("name") or known)


def _store(folder: Path) -> str:
    from conformance.process.disk.stores import folder_size, size_of
    from conformance.process.errors import display_path

    name = display_path(folder)
    if not folder.is_dir():
        return f"{name}, which is not there yet"
    return f"{name}: {size_of(folder_size(folder))}; conformance clean frees it"


def _plugins() -> Iterator[str]:
    named = {f"{point.name} ({point.dist.name} {point.dist.version})" for point in entry_points(group="pytest11")
             if point.dist is not None}  # fmt: skip
    yield f"plugins: {', '.join(sorted(named)) or 'none'}"


def _collisions(folder: Path) -> Iterator[str]:
    """Yield the short names of this package's options that a ``conftest.py`` of the project has too: there they mean
    what the project says, and ``--conformance-NAME`` means ours."""
    plugins: Any = [point.load() for point in entry_points(group="pytest11", name="conformance.plugin")]
    ours: set[str] = plugins[0].declared_options.short_names() if plugins else set()
    for file in sorted([*folder.glob("conftest.py"), *folder.glob("*/conftest.py"), *folder.glob("*/*/conftest.py")]):
        theirs = sorted(ours & set(_added(file)))
        if theirs:
            names = ", ".join(theirs)
            yield f"{file.relative_to(folder)} has options of our names ({names}): ours are --conformance-..."


def _added(file: Path) -> Iterator[str]:
    """Yield the options that a file adds to pytest, as far as they are written out."""
    from conformance.process.errors import or_else

    tree = or_else(None, lambda: ast.parse(file.read_text(encoding="utf-8")))
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "addoption":
            yield from (str(one.value) for one in node.args if isinstance(one, ast.Constant))
