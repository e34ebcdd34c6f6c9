"""Read and check the options. A wrong one is a UsageError at once."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from conformance.front import option_types
from conformance.front.plugin.declared_options import MOST_WORKERS
from conformance.process.disk.stores import bytes_of
from conformance.process.errors import UserError
from conformance.process.worker import memory
from conformance.results.records.processor import INSTRUCTIONS
from conformance.results.records.sanitize import block
from conformance.results.records.words import Check, Exporter, Precision
from conformance.runtimes import registry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from conformance.case.plan.catalogue import Selection
    from conformance.case.plan.cell import Cell
    from conformance.models.kept.results import Last
    from conformance.results.records.record import Record

_ENDS = {"none": 0.0, "all": math.inf}
"""The words that ``--explain`` takes besides a time."""
_WORDS = (*get_args(Check), *get_args(Exporter), *get_args(Precision), *registry.IN_CASES)
_BROAD = {"and", "or", "not", *_WORDS, *(f"test_{word}" for word in get_args(Check))}
"""The words of a ``-k`` that chooses among the cells of all cases."""
SELECTION = ("exporter", "opset", "runtime", "precision")


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
        self.provider_options()
        self.cell_workers()
        self.cell_memory()
        self.store_limit()
        if self["shard_durations"] is not None and self["shard"] is None:
            raise pytest.UsageError("--shard-durations says how shards are cut: give --shard I/N with it")
        if self["shard_durations"] is not None and not (self.folder / self["shard_durations"]).exists():
            raise pytest.UsageError(f"--shard-durations {self['shard_durations']}: there is no such run")
        if self["baseline"] is None and self["shard"] is None:
            return
        from conformance.results.baseline.baseline_file import load
        from conformance.results.baseline.shards import parse_shard

        with refusing():
            if self["shard"] is not None:
                parse_shard(self["shard"])
            if self["baseline"] is not None:
                load(self.baseline)

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
        with refusing("--store-limit: "):
            return bytes_of(self["store_limit"])

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
        return [next((folder for folder in self._usual() if folder.is_dir()), self._usual()[0])]

    def _usual(self) -> list[Path]:
        """Return where cases lie unless an option says it, the first first."""
        return list(dict.fromkeys(folder / "cases" for folder in (self.folder, self.config.rootpath)))

    def without_cases(self) -> str:
        """Return the sentence about a ``conformance run`` for which there is no case file; empty where there is one,
        before ``take_case_paths``."""
        looked = [Path(path) for path in (*(self["cases"] or ()), *self.config.args[1:])] or self._usual()
        there = [path for path in looked if os.path.lexists(path)]
        if any(not path.is_dir() or next(path.rglob("*.y*ml"), None) for path in there):
            return ""
        from conformance.case.files import case_file

        if case_file.case_files(there):
            return ""
        what = "case file (.yaml, .yml) in " if there else ""
        text = f"there is no {what}{' and '.join(map(str, there or looked))}"
        return f"{text}; name case files or folders, or write a first case: conformance new NAME"

    def may_need_dynamo(self) -> bool:
        """Return whether several processes may export with dynamo, before the cases are read: whether a case file
        names it, or no exporter at all, and no ``-k`` chooses few cells. A wrong answer costs seconds and no more."""
        words = re.findall(r"[^\s()]+", self.config.getoption("keyword") or "")
        if {*words} - _BROAD or (self["exporter"] and "dynamo" not in self["exporter"]):
            return False
        for path in self.case_paths():
            for file in path.rglob("*.y*ml") if path.is_dir() else [path]:
                with contextlib.suppress(OSError):
                    text = file.read_bytes()
                    if b"dynamo" in text or not re.search(rb"\bexport\b\W*:", text):
                        return True
        return False

    def selection(self) -> Selection:
        from conformance.case.plan.catalogue import selection

        with refusing():
            return selection({name: self[name] for name in SELECTION})

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
        """The words of --cluster-needs, as ``extras.cluster.host_facts`` spells them."""
        known = {name: f"runtime {name}" for name in registry.MAY_LACK}
        known |= {word: word for word in ("gpu", *INSTRUCTIONS)}
        words = [word.strip() for word in (self["cluster_needs"] or "").split(",") if word.strip()]
        for word in words:
            if word not in known:
                raise pytest.UsageError(f"--cluster-needs: '{word}' is not known; known: {', '.join(sorted(known))}")
        return [known[word] for word in words]

    def builder_options(self) -> dict[str, object]:
        """Return what --tensorrt says, checked like the ``tensorrt`` of a case."""
        given = self["tensorrt"]
        if given is None:
            return {}
        from conformance.case.files.deploy import builder_options

        with refusing("--tensorrt: "):
            return builder_options(given)

    def provider_options(self) -> dict[str, str]:
        """Return what --provider-option says, by option."""
        from conformance.front.commands import pairs

        with refusing():
            return pairs(filter(None, (self["provider_option"] or "").split(",")), "--provider-option", r"[\w.]+")

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
        from conformance.results.records.run_file import read_run

        if self["random"]:
            raise pytest.UsageError("--random draws other examples, --reuse keeps earlier results: give one of them")
        with refusing("--reuse "):
            _, records = read_run(self.folder / self["reuse"])
        required = self.required()
        sound = [record for record in records if may_stand(record, required)]
        return {record.fingerprint: json.dumps(record.as_dict()) for record in sound if record.fingerprint}

    def last_runs(self, cells: Iterable[Cell]) -> dict[str, Last]:
        """By cell id what is known of its last run: by the store, and else by the run in the folder of this one."""
        from conformance.models.kept.results import Last, last
        from conformance.results.records.run_file import read_run

        found = {cell.id: known for cell in cells if (known := last(self.store / "index", cell)) is not None}
        try:
            header, records = read_run(self.report)
        except (UserError, OSError):
            return found
        were = header.get("conditions")
        of_run = {one.id: Last.from_dict(one.depends, were) for one in records if one.depends is not None}
        return {**of_run, **found}

    def flags(self) -> list[str]:
        """The arguments of the command, of PYTEST_ADDOPTS and of settings, all of which may select cells."""
        standing = [*self.config.getoption("conformance_standing", ()), *self.config.getini("addopts")]
        standing += shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
        return [*standing, *(str(argument) for argument in self.config.invocation_params.args)]


def may_stand(record: Record, required: Collection[str]) -> bool:
    """Return whether what an earlier run says of a cell may stand: that it is right, or wrong as declared; or that
    what it ran shows neither, unless a verdict of its runtime is required."""
    if record.status == "skipped":
        return record.undecided and record.runtime not in required
    # a duration belongs to the run that measured it
    return record.status in ("passed", "xfailed") and record.check != "latency"


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def refusing(before: str = "") -> Iterator[None]:
    """Raise UsageError for a UserError inside the block, and for a file that cannot be read; ``before`` names the
    option that it is about."""
    try:
        yield
    except (UserError, OSError) as error:
        raise pytest.UsageError(block(f"{before}{error}")) from None
