"""Read and check the options. A wrong one is a UsageError at once."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from conformance import HOME
from conformance.commands import option_types
from conformance.disk.stores import DEFAULT_STORE, LIMIT, bytes_of
from conformance.errors import UserError
from conformance.records.processor import INSTRUCTIONS
from conformance.records.sanitize import block
from conformance.runtimes import registry
from conformance.worker import memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from conformance.depends.results import Last
    from conformance.plan.catalogue import Selection
    from conformance.plan.cell import Cell

MOST_WORKERS = 4
"""Workers that a run has unless it says how many: each takes memory for its modules and models."""
_ENDS = {"none": 0.0, "all": math.inf}
"""The words that ``--explain`` takes besides a time."""
SELECTION = ("exporter", "opset", "runtime", "precision")


PREFIX = "--conformance-"
"""How every option begins, since the plugin is there in every project of its environment."""
NAMES: set[str] = set()
"""The options' short names."""
_SUITE = "conformance"
_TAKES_VALUE = frozenset({"-k", "-m", "-p", "-o", "-c", "-n", "-r", "-W"})
"""Options of pytest whose value follows, so that it is no path."""


def add(parser: pytest.Parser, *, short: bool = False) -> None:
    """Add the options, by the names that ``rename`` gives, or by their ``short`` ones too."""
    group = _Group(parser, short=short)
    group.add("cases", action="append", metavar="PATH", help="case files or folders (default: cases/); repeatable")
    group.add("run", action="store_true", help=argparse.SUPPRESS)
    for name, what in (
        ("exporter", "torchscript, dynamo, onnx"),
        ("opset", "numbers"),
        ("runtime", ", ".join(registry.IN_CASES)),
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
        "examples",
        type=option_types.count(0),
        metavar="N",
        help="drawn shapes for each cell, besides the boundary ones",
    )
    group.add(
        "random", action="store_true", help="draw other examples in this run; failing draws are kept and replayed"
    )
    group.add("report", default="reports/latest", metavar="DIR", help="write the run there (default: %(default)s)")
    group.add(
        "reuse",
        metavar="RUN",
        help="take over what passed or failed as declared in that run, where nothing it depends on has changed",
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


class _Group:
    """The options of this package in pytest's parser."""

    def __init__(self, parser: pytest.Parser, *, short: bool) -> None:
        self._group = parser.getgroup("conformance", "accuracy conformance of exported models")
        self._short = short

    def add(self, name: str, **settings: Any) -> None:
        NAMES.add(name)
        short = [f"--{name}"] if self._short else []
        self._group.addoption(*short, f"{PREFIX}{name}", dest=f"conformance_{name.replace('-', '_')}", **settings)


class _Nowhere:
    """A parser that only lets the names of options be noted."""

    def getgroup(self, *about: str) -> _Nowhere:
        return self

    def addoption(self, *names: str, **settings: Any) -> None:
        pass


def short_names() -> set[str]:
    """Return the short names of all options, as ``--runtime``."""
    add(cast("pytest.Parser", _Nowhere()))
    return {f"--{name}" for name in NAMES}


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


class Options:
    """The options of one session by name, and those that take reading."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def __getitem__(self, name: str) -> Any:
        return self.config.getoption(f"conformance_{name}")

    def check(self) -> None:
        """UsageError for options that cannot be used, before they show as collection errors or after the run."""
        if any(self[name] is not None for name in SELECTION):
            self.selection()
        self.required()
        self.builder_options()
        self.cell_workers()
        self.cell_memory()
        self.store_limit()
        if self["shard_durations"] is not None and self["shard"] is None:
            raise pytest.UsageError("--shard-durations says how shards are cut: give --shard I/N with it")
        if self["shard_durations"] is not None and not (self.folder / self["shard_durations"]).exists():
            raise pytest.UsageError(f"--shard-durations {self['shard_durations']}: there is no such run")
        if self["baseline"] is None and self["shard"] is None:
            return
        from conformance.baseline import load, parse_shard

        try:
            if self["shard"] is not None:
                parse_shard(self["shard"])
            if self["baseline"] is not None:
                load(self.baseline)
        except (UserError, OSError) as error:
            raise pytest.UsageError(block(error)) from None

    @property
    def folder(self) -> Path:
        """Return where pytest was started."""
        return self.config.invocation_params.dir

    @property
    def report(self) -> Path:
        """The folder that the run is written to."""
        return self.folder / str(self["report"])

    @property
    def store(self) -> Path:
        """The folder of exported models and failing draws."""
        return self.folder / str(self["store"])

    def store_limit(self) -> int:
        """Bytes that the store may have."""
        try:
            return bytes_of(self["store_limit"])
        except UserError as error:
            raise pytest.UsageError(f"--store-limit: {error}") from None

    @property
    def baseline(self) -> Path:
        return self.folder / str(self["baseline"])

    def take_case_paths(self) -> None:
        """Make ``--cases`` of all paths behind the suite's own, where ``conformance run`` has started pytest."""
        if self["run"]:
            self.config.option.conformance_cases = [*(self["cases"] or ()), *self.config.args[1:]] or None
            del self.config.args[1:]

    def case_paths(self) -> list[Path]:
        if self["cases"]:
            return [Path(path) for path in self["cases"]]
        for folder in (self.folder, self.config.rootpath):
            if (folder / "cases").is_dir():
                return [folder / "cases"]
        return [self.folder / "cases"]

    def may_need_dynamo(self) -> bool:
        """Return whether several processes may export with dynamo, before the cases are read: whether a case file
        names it, or no exporter at all, and no ``-k`` chooses few cells. A wrong answer costs seconds and no more."""
        if self.config.getoption("keyword") or (self["exporter"] and "dynamo" not in self["exporter"]):
            return False
        for path in self.case_paths():
            for file in path.rglob("*.y*ml") if path.is_dir() else [path]:
                with contextlib.suppress(OSError):
                    text = file.read_bytes()
                    if b"dynamo" in text or b"export:" not in text:
                        return True
        return False

    def selection(self) -> Selection:
        from conformance.plan.catalogue import selection

        try:
            return selection({name: self[name] for name in SELECTION})
        except UserError as error:
            raise pytest.UsageError(block(error)) from None

    def required(self) -> frozenset[str]:
        """Return what --require names, which must not be skipped.

        Runtimes, and latency.
        """
        given = self["require"]
        if given is None:
            return frozenset()
        known = {*registry.MAY_LACK, "latency"}
        words = frozenset(word.strip() for word in given.split(",") if word.strip())
        for word in sorted(words - known):
            raise pytest.UsageError(
                f"--require: '{word}' is nothing that can be required; known: {', '.join(sorted(known))}"
            )
        if not words:
            raise pytest.UsageError("--require is empty")
        return words

    def cluster_needs(self) -> list[str]:
        """The words of --cluster-needs, as ``cluster.host_facts`` spells them."""
        known = {name: f"runtime {name}" for name in registry.MAY_LACK}
        known |= {word: word for word in ("gpu", *INSTRUCTIONS)}
        words = [word.strip() for word in (self["cluster_needs"] or "").split(",") if word.strip()]
        for word in words:
            if word not in known:
                raise pytest.UsageError(f"--cluster-needs: '{word}' is not known; known: {', '.join(sorted(known))}")
        return [known[word] for word in words]

    def builder_options(self) -> dict[str, Any]:
        """Return what --tensorrt says, checked like the ``tensorrt`` of a case."""
        given = self["tensorrt"]
        if given is None:
            return {}
        from conformance.case.deploy import builder_options

        try:
            return builder_options(given)
        except UserError as error:
            raise pytest.UsageError(block(f"--tensorrt: {error}")) from None

    def cell_workers(self) -> int:
        """Return how many cells run at a time in workers of this process."""
        given: int | None = self["cell_workers"]
        elsewhere = {
            "-n": hasattr(self.config, "workerinput") or self.config.getoption("dist", "no") != "no",
            "--cluster": self["cluster"] is not None,
            "--isolation none": self["isolation"] == "none",
            "--stepwise": bool(self.config.getoption("stepwise", False)),  # it goes on behind the test that failed
        }
        for option, is_given in elsewhere.items():
            if is_given and given is not None and given > 1 and not hasattr(self.config, "workerinput"):
                raise pytest.UsageError(f"--cell-workers {given} does not go with {option}: give one of them")
            if is_given:
                return 1
        return min(_cores(), MOST_WORKERS) if given is None else given

    def explain_seconds(self) -> float:
        """Return how long failures may be explained: 0 for not at all, infinity for as long as it takes."""
        given = self["explain"]
        return _ENDS[given] if given in _ENDS else option_types.duration(given)

    def cell_memory(self) -> float:
        """GiB that a cell may take, where as many run at a time as there are workers, or processes of xdist."""
        given: float | None = self["cell_memory"]
        if given is None:
            workers: dict[str, Any] = getattr(self.config, "workerinput", {})
            return memory.share(workers.get("workercount", self.cell_workers()))
        return given

    def earlier(self) -> dict[str, str]:
        """With --reuse, by fingerprint, the records of the earlier run that need not be made again, as JSON, which
        takes a quarter of their memory."""
        if self["reuse"] is None:
            return {}
        from conformance.records.run_file import read_run

        if self["random"]:
            raise pytest.UsageError("--random draws other examples, --reuse keeps earlier results: give one of them")
        try:
            _, records = read_run(self.folder / self["reuse"])
        except (UserError, OSError) as error:
            raise pytest.UsageError(block(f"--reuse {error}")) from None
        # a duration belongs to the run that measured it
        sound = [r for r in records if r["status"] in ("passed", "xfailed") and r["check"] != "latency"]
        return {record["fingerprint"]: json.dumps(record) for record in sound if record["fingerprint"]}

    def last_runs(self, cells: Iterable[Cell]) -> dict[str, Last]:
        """By cell id what is known of its last run: by the store, and else by the run in the folder of this one."""
        from conformance.depends.results import Last, last
        from conformance.records.run_file import read_run

        found = {cell.id: known for cell in cells if (known := last(self.store / "index", cell)) is not None}
        try:
            header, records = read_run(self.report)
        except (UserError, OSError):
            return found
        were = header.get("conditions")
        of_run = {r["id"]: Last.from_dict(r["depends"], were) for r in records if r.get("depends") is not None}
        return {**of_run, **found}

    def flags(self) -> list[str]:
        """The arguments of the command, of PYTEST_ADDOPTS and of pytest's settings, all of which may select cells."""
        standing = [*self.config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
        return [*standing, *(str(argument) for argument in self.config.invocation_params.args)]


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
