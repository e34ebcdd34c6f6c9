"""A watch without workers: what a test scripts stands in for the runner and for whoever saves files."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conformance.case.plan.catalogue import Selection
from conformance.case.plan.cell import Cell
from conformance.case.plan.keyword_selection import Words
from conformance.front.commands.screen import Screen
from conformance.front.commands.watch.file_watcher import Changed, WatchedFiles
from conformance.front.commands.watch.watch_loop import WatchLoop
from conformance.front.commands.watch.watched_cells import Catalogue
from conformance.results.records.record import Record
from tests.kit.modules import net_of

CASES = """
defaults:
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  export: {torchscript: [17]}
  runtimes: onnxruntime
  specials: false
plain: {about: has no Python, forward: 2 * torch.sin(x)}
own: {about: has Python beside it, module: modules.Net}
"""
MODULES = "import helper" + net_of("torch.cos(x) + helper.AMOUNT")
PLAIN = ["export[plain-torchscript-op17]", "accuracy[plain-torchscript-op17-onnxruntime-fp32]"]
OWN = [name.replace("plain", "own") for name in PLAIN]
LIMIT = 20.0
"""Seconds after which a change that should have been noticed was not."""

OnWait = Callable[[dict[str, Any]], object]


def project(folder: Path) -> Path:
    """A folder with two cases; the folder of the case file."""
    cases = folder / "cases"
    cases.mkdir(parents=True)
    (cases / "cases.yaml").write_text(CASES)
    (cases / "modules.py").write_text(MODULES)
    (cases / "helper.py").write_text("AMOUNT = 1\n")
    return cases


@dataclass
class StubRunner:
    """Every cell passes, unless ``acts`` says otherwise: there an act is called in place of the cell."""

    acts: dict[str, Callable[[Record, OnWait], object]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    renewed: int = 0

    def __call__(self, cell: Cell, on_wait: OnWait) -> Record:
        self.ran.append(cell.id)
        record = cell.record()
        record.status = "passed"
        if cell.id in self.acts:
            self.acts[cell.id](record, on_wait)
        return record

    def renew(self) -> None:
        self.renewed += 1


@dataclass
class Watch:
    """One run of the loop: what it said and ran, by round; the first round is that of the start."""

    code: int
    said: list[str]
    ran: list[list[str]]


def fail(record: Record, on_wait: OnWait) -> None:
    record.status, record.stage, record.error, record.reason = "failed", "compare", "WrongShape", "planted"


class Stepping(WatchedFiles):
    """Notices changes at once. When the loop waits, the next step happens, and Ctrl-C after the last."""

    def __init__(self, steps: Iterable[Callable[[], object]], at_wait: Callable[[], None]) -> None:
        super().__init__(pause=0.0)
        self._steps, self._at_wait = iter(steps), at_wait

    def wait(self) -> Changed:
        self._at_wait()
        step = next(self._steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            changed = self.look()
            if changed is not None:
                return changed
            time.sleep(0.01)
        raise AssertionError("the change was not noticed")


def watch(
    capsys: pytest.CaptureFixture[str],
    *steps: Callable[[], object],
    words: str = "",
    runner: StubRunner | None = None,
) -> Watch:
    """Run the loop here, on the folder ``cases``, with these steps."""
    runner = runner or StubRunner()
    rounds: list[list[str]] = []
    said: list[str] = []

    def collect() -> None:
        rounds.append(runner.ran.copy())
        runner.ran.clear()
        said.append(capsys.readouterr().out)

    catalogue = Catalogue([Path("cases")], Selection(), Words(words), None)
    store = Path("store").absolute()
    loop = WatchLoop(
        catalogue, catalogue.read(), runner, Screen(), store, 2**30, lambda name: f"pytest -k {name}",
        watched=Stepping(steps, collect),
    )  # fmt: skip
    code = loop.run()
    collect()
    return Watch(code, said, rounds[:-1])
