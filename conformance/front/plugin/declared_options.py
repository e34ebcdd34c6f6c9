"""Declare the options to pytest, and say whether a session is about the suite, without importing what reads them."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from conformance import HOME
from conformance.front import option_types
from conformance.process.disk import DEFAULT_STORE, LIMIT
from conformance.runtimes import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

MOST_WORKERS = 4
"""Workers that a run has unless it says how many: each takes memory for its modules and models."""
PREFIX = "--conformance-"
"""The beginning of every option, since the plugin is there in every project of its environment."""
NAMES: dict[str, dict[str, Any]] = {}
"""The options by their short names, as argparse is told of each."""
_SUITE = "conformance"
_TAKES_VALUE = frozenset({"-k", "-m", "-p", "-o", "-c", "-n", "-r", "-W"})
"""Options of pytest whose value follows, so that it is no path."""


def add(parser: pytest.Parser, *, short: bool = False) -> None:
    """Add the options, by the names that ``rename`` gives, or by their ``short`` ones too."""
    group = _OptionGroup(parser, short=short)
    group.add("cases", action="append", metavar="PATH", help="case files or folders (default: cases/); repeatable")
    group.add("run", action="store_true", help=argparse.SUPPRESS)
    for name, what in (
        ("exporter", "torchscript, dynamo, onnx"),
        ("opset", "numbers"),
        ("runtime", f"{', '.join(registry.IN_CASES)}; one that no case names runs them all"),
        ("precision", "fp32, fp16, int8"),
    ):
        group.add(name, metavar="A,B", help=f"keep only these: {what}")
    group.add(
        "require",
        metavar="A,B",
        help="what cannot be run or decided here has failed, instead of being skipped: "
        + ", ".join((*registry.MAY_LACK, "latency")),
    )
    group.add(
        "require-provider",
        action="store_true",
        help="a model of which a provider of ONNX Runtime (onnxruntime-cuda, ...) leaves nodes to the CPU has failed",
    )
    group.add(
        "tensorrt",
        metavar="KEY=VALUE,...",
        help="builder options that go before those of the cases, as in optimization_level=5,workspace=1GiB",
    )
    group.add(
        "provider-option",
        metavar="KEY=VALUE,...",
        help="options of the execution providers that go before those of the cases, as in use_tf32=1",
    )
    group.add(
        "examples",
        type=option_types.count(0),
        metavar="N",
        help="drawn shapes for each cell, besides the boundary ones",
    )
    group.add("budget", type=option_types.duration, metavar="TIME", help=option_types.BUDGET)
    group.add(
        "random", action="store_true", help="draw other examples in this run; failing draws are kept and replayed"
    )
    group.add("report", default="reports/latest", metavar="DIR", help="write the run there (default: %(default)s)")
    group.add(
        "reuse",
        metavar="RUN",
        help="take over what passed, failed as declared or had no verdict in that run, "
        "where nothing it depends on has changed",
    )
    group.add(
        "no-observe",
        action="store_true",
        help="do not observe what cells use; then nothing is kept for a later run, and nothing kept is used",
    )
    group.add(
        "explain",
        type=option_types.budget,
        default="120s",
        metavar="120s|none|all",
        help="how long failures are explained once every cell has its verdict, each cause once; all: without limit, "
        "declared failures too (default: %(default)s)",
    )
    group.add(
        "baseline", metavar="RUN", help="also fail on what got worse since that run, or since a committed baseline"
    )
    group.add(
        "changed-since",
        metavar="REV",
        help="only the cells whose case, Python, registration or pins differ from that git revision",
    )
    group.add("shard", metavar="I/N", help="the I-th of N parts of the cells, for a job of its own")
    group.add(
        "shard-durations",
        metavar="RUN",
        help="cut shards that take equally long by that run, the same one in all; else by the names of cases",
    )
    group.add(
        "cluster",
        metavar="ADDRESS",
        help="run the cells on the workers of a Dask scheduler (tcp://host:8786), or of one with N workers that is "
        "started here (local:N)",
    )
    group.add(
        "cluster-needs",
        metavar="A,B",
        help="use only workers that have these: gpu, a runtime, or an instruction set as avx512_vnni",
    )
    group.add(
        "cluster-timeout",
        type=option_types.seconds,
        default=60.0,
        metavar="S",
        help="how long to wait for a worker, at the start and whenever none that fits is left (default: %(default)s)",
    )
    group.add(
        "store",
        default=DEFAULT_STORE,
        metavar="DIR",
        help="exported models and failing draws (default: %(default)s)",
    )
    group.add(
        "store-limit",
        default=LIMIT,
        metavar="SIZE",
        help="of the store's models, engines and bundles drop those that were not used for longest, until it is no "
        "larger; none that this run uses (default: %(default)s)",
    )
    group.add(
        "cell-workers",
        type=option_types.count(1),
        metavar="N",
        help=f"how many cells run at a time, each in a process of its own (default: as many as there are cores, at "
        f"most {MOST_WORKERS}; 1 with -n, where each of its processes runs cells)",
    )
    group.add(
        "cell-timeout",
        type=option_types.seconds,
        default=300.0,
        metavar="S",
        help="a cell that takes longer has failed (default: %(default)s)",
    )
    group.add(
        "cell-memory",
        type=option_types.gibibytes,
        metavar="GIB",
        help="a cell that takes more memory has failed (default: 16, or its share of 9/10 of what there is, if less)",
    )
    group.add(
        "isolation",
        choices=("process", "none"),
        default="process",
        help="none: in this process, for a debugger",
    )


def rename(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command of pytest with each short name of an option written in full."""

    def in_full(argument: str) -> str:
        name = argument.partition("=")[0].removeprefix("--")
        return f"{PREFIX}{argument[2:]}" if argument.startswith("--") and name in NAMES else argument

    return [in_full(str(argument)) for argument in arguments]


class _OptionGroup:
    """The options of this package in pytest's parser."""

    def __init__(self, parser: pytest.Parser, *, short: bool) -> None:
        self._group = parser.getgroup("conformance", "accuracy conformance of exported models")
        self._short = short

    def add(self, name: str, **settings: object) -> None:
        NAMES[name] = settings
        short = [f"--{name}"] if self._short else []
        self._group.addoption(*short, f"{PREFIX}{name}", dest=f"conformance_{name.replace('-', '_')}", **settings)


class _Nowhere:
    """A parser that only lets the names of options be noted."""

    def getgroup(self, *about: str) -> _Nowhere:
        return self

    def addoption(self, *names: str, **settings: object) -> None:
        pass


def by_name() -> dict[str, dict[str, Any]]:
    """Return all options by their short names, as ``runtime``, with what argparse is told of each."""
    add(cast("pytest.Parser", _Nowhere()))
    return NAMES


def short_names() -> set[str]:
    """Return the short names of all options, as ``--runtime``."""
    return {f"--{name}" for name in by_name()}


def names_suite(arguments: Sequence[str]) -> bool:
    """Return whether a command of pytest names the suite of this package among its paths."""
    previous = ""
    for argument in map(str, arguments):
        path = argument.partition("::")[0]
        if not argument.startswith("-") and previous not in _TAKES_VALUE:
            if "--pyargs" in arguments and path.partition(".")[0] == _SUITE:
                return True
            with contextlib.suppress(OSError, ValueError):
                if Path(path).resolve() in (HOME, HOME / "test_suite.py"):
                    return True
        previous = argument
    return False


def may_collect_suite(config: pytest.Config) -> bool:
    """Return whether pytest will collect the suite: it is named, or lies below a folder that is, but not where
    packages are installed."""
    flags = ["--pyargs"] if config.option.pyargs else []
    if names_suite([*flags, *config.args]):
        return True
    folders = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    below = [HOME.relative_to(folder).parts for folder in folders if HOME.is_relative_to(folder)]
    return any({"site-packages", "dist-packages"}.isdisjoint(parts) for parts in below)
