"""Run cells below a Dask worker, each in a process of its own."""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
import tarfile
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.extras.cluster.freight import moved, retold
from conformance.extras.cluster.run_description import store_of
from conformance.process.disk import LIMIT
from conformance.process.disk.stores import bytes_of, make, tidy
from conformance.process.errors import display_path, why
from conformance.process.worker import memory
from conformance.process.worker.warm import new_worker
from conformance.results.records.record import FIELDS, Record

IDLE = 600.0
"""Seconds without a cell after which the process ends, with the memory that it keeps: who sent cells may have been
killed. Another process is started where cells come after all."""

MOST_BYTES = 64 * 2**20
"""Of a failing example's bundle that is brought back. A larger one stays with its worker; the record says where."""


def main() -> None:
    """Answers each list of cells with ``("begun", id)`` and ``("ended", id, record, bundle)`` for each of them, where
    the record is pickled, and with ``("done",)``; with ``("unfit", reason)`` where this host cannot write."""
    with Connection(int(sys.argv[1])) as connection:
        run, root, started_in = connection.recv()
        home = store_of(run, started_in)
        shared = home == Path(run.store)
        try:
            if not shared:
                make(home)
                tidy(home, bytes_of(LIMIT))
        except OSError as error:
            connection.send(("unfit", f"{display_path(home)}: cannot be made ({why(error)})"))
            return
        settings = Settings(
            store=home / "models", failures=home / "failures", answers=home / "answers", outcomes=home / "outcomes",
            **run.settings,
        )  # fmt: skip
        gib = memory.share(run.neighbours) if run.memory_gib is None else run.memory_gib
        names = [(display_path(home), run.store_shown), (str(root), "")]

        def gone(note: Mapping[str, object]) -> None:
            if connection.poll():  # nothing comes while cells run but the end of the connection
                raise SystemExit

        with new_worker(gib) as worker:
            runner = Runner(settings, run.timeout, worker)
            for cells in received(connection, root):
                for cell, following in zip(cells, [*cells[1:], None], strict=True):
                    connection.send(("begun", cell.id))
                    record = runner(cell, gone, following)
                    if record.error == "CannotWrite" and record.fault == "harness":
                        connection.send(("unfit", str(record.reason)))
                        return
                    bundle = None if shared else _bundle(record, home)
                    told = Record(**retold({name: getattr(record, name) for name in FIELDS}, names))
                    connection.send(("ended", cell.id, pickle.dumps(told), bundle))
                connection.send(("done",))


def received(connection: Connection, root: Path, idle: float = IDLE) -> Iterator[list[Cell]]:
    """The lists of cells that come, with their cases where they lie here, until the connection ends or none has come
    for ``idle`` seconds."""
    while connection.poll(idle):
        try:
            cells: list[Cell] = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        cases = {id(cell.case): cell.case for cell in cells}
        here = {known: moved(case, root) for known, case in cases.items()}
        yield [dataclasses.replace(cell, case=here[id(cell.case)]) for cell in cells]


def _bundle(record: Record, home: Path) -> tuple[str, bytes] | None:
    """The bundle of a record, to be laid into the store of the run: its path in the store, and a tar archive."""
    if record.bundle is None:
        return None
    folder = Path(record.bundle).absolute()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > MOST_BYTES:
        record.bundle, record.no_bundle = None, f"it lies in {folder} of the worker, and has {size / 2**20:.0f} MiB"
        return None
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(folder, arcname=".")
    return str(folder.relative_to(home.absolute())), archive.getvalue()
