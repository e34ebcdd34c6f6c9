"""One worker's life of many cells, one in a hundred of them hostile."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.process.worker.isolation import Worker
from conformance.process.worker.warm import new_worker
from evidence.endurance.catalogue import cells, write_hostile, write_sound
from evidence.endurance.processes import MARK, descriptors, marked, resident

HOSTILE = 0.01
"""The share of cells that do harm."""
WITH_A_RUNTIME = 0.1
"""The share of sound cells that run a model. The others look at a model in the store, and need no runtime."""
TIMEOUT = 20.0
"""Seconds a cell."""

_OF_LIBRARIES = (".ses", "torchinductor_")
"""How the names begin of what ONNX Runtime and PyTorch keep for all processes in the folder for temporary files."""


@dataclass
class Held:
    """What a process holds; MiB of memory."""

    resident: float
    descriptors: int


@dataclass
class Streamed:
    """What was seen of all cells."""

    cells: int = 0
    hostile: dict[str, int] = field(default_factory=dict)
    """By status, the records of hostile cells."""
    lost: int = 0
    swapped: int = 0
    harmed: list[str] = field(default_factory=list)
    """Sound cells that did not pass, with what they said."""
    seconds: float = 0.0
    controller: list[Held] = field(default_factory=list)
    """At the start, after a tenth of the cells, and at the end."""
    worker: list[Held] = field(default_factory=list)
    """At the start and at the end; it has been replaced often in between."""
    files: list[str] = field(default_factory=list)
    """Temporary files left."""
    processes: int = 0
    """Processes that were alive a second after the end."""


@functools.cache
def study(count: int) -> Streamed:
    """Runs so many cells in a new process, through one ``Runner`` as the suite does, and holds every record against
    its cell."""
    token = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, MARK: token, "TMPDIR": name}
        command = [sys.executable, "-c", f"from evidence.endurance import stream; stream.main({count})"]
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        time.sleep(1)
        seen = Streamed(**json.loads(result.stdout.splitlines()[-1]))
        for side in (seen.controller, seen.worker):
            side[:] = [Held(**held) for held in side]  # type: ignore[arg-type]
        seen.processes = len(marked(token))
        left = sorted(path.name for path in Path(name).iterdir())
        seen.files = [name for name in left if not name.startswith(_OF_LIBRARIES)]
    return seen


def _here(count: int) -> Streamed:
    seen = Streamed()
    with tempfile.TemporaryDirectory() as name, new_worker() as worker:
        folder = Path(name)
        sound, hostile = cells(write_sound(folder)), cells(write_hostile(folder / "hostile"))
        runner = Runner(Settings(store=folder / "store", examples=1), TIMEOUT, worker)
        for cell in sound:  # exported, and judged sound, before any harm
            assert runner(cell).status == "passed", cell.id
        seen.controller.append(_held())
        seen.worker.append(_held_by(worker))
        start = time.monotonic()
        _stream(runner, _mixed(sound, hostile, count), seen)
        seen.seconds = time.monotonic() - start
        seen.controller.append(_held())
        seen.worker.append(_held_by(worker))
    return seen


def _mixed(sound: list[Cell], hostile: list[Cell], count: int) -> list[Cell]:
    rng = random.Random(0)
    running = [cell for cell in sound if cell.runtime is not None]
    others = [cell for cell in sound if cell.runtime is None]

    def drawn() -> Cell:
        if rng.random() < HOSTILE:
            return rng.choice(hostile)
        return rng.choice(running if rng.random() < WITH_A_RUNTIME else others)

    return [drawn() for _ in range(count)]


def _stream(runner: Runner, chosen: list[Cell], seen: Streamed) -> None:
    for index, cell in enumerate(chosen):
        following = chosen[index + 1] if index + 1 < len(chosen) else None
        try:
            record = runner(cell, then=following)
        except Exception as error:
            seen.lost += 1
            seen.harmed.append(f"{cell.id}: {type(error).__name__}: {error}")
            continue
        seen.cells += 1
        seen.swapped += record.id != cell.id
        if cell.case.file.name == "hostile.yaml":
            seen.hostile[record.status] = seen.hostile.get(record.status, 0) + 1
        elif record.status != "passed":
            seen.harmed.append(f"{cell.id}: {record.error}: {record.reason}")
        if index == len(chosen) // 10:
            seen.controller.append(_held())


def _held(_: object = None) -> Held:
    return Held(resident(os.getpid()), descriptors(os.getpid()))


def _held_by(worker: Worker) -> Held:
    held = worker.call(_held, timeout=TIMEOUT)
    assert isinstance(held, Held), held
    return held


def main(count: int) -> None:
    """What ``study`` runs in a process of its own."""
    print(json.dumps(dataclasses.asdict(_here(count))))
