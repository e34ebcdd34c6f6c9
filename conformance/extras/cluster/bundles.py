"""Replaying a bundle on the workers of a cluster, with the Python and the runtimes that they have."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from conformance.cells.replay import code
from conformance.cells.replay.replay_bundle import begin_run, chosen_of, conclude, id_of, record_of
from conformance.extras.cluster.coordinator import CellJob, Cluster
from conformance.extras.cluster.freight import Freight
from conformance.extras.cluster.host_facts import RUNTIME
from conformance.extras.cluster.run_description import Run
from conformance.extras.cluster.tasks import replay
from conformance.extras.cluster.workers import SchedulerLost
from conformance.models.bundle.bundle_files import CELLS, HEAD
from conformance.models.bundle.bundle_layout import Bundle
from conformance.models.bundle.entry import Entry
from conformance.process.errors import Stopped, UserError
from conformance.results.records.explanation import fail
from conformance.results.records.record import Record


def replay_on(
    address: str,
    bundle: Bundle,
    runtime: str,
    report: Path,
    store: Path,
    *,
    keep: Callable[[str], bool],
    timeout: float,
    required: bool,
    require_provider: bool,
    libraries: bool,
    flags: Sequence[str],
    tell: Callable[[str], object],
    on_record: Callable[[Record], object],
) -> list[Record]:
    """As ``replay_bundle.replay``, on workers that have the runtime; UserError where there is none, or the scheduler
    goes away. The records that came until then are in ``report``."""
    chosen, limited = chosen_of(bundle, runtime, keep)
    for line in code.announced(bundle, chosen) if libraries else ():
        tell(line)
    entries = {id_of(entry, runtime): entry for entry in chosen}

    def lost(id: str, error: str, reason: str) -> Record:
        record = record_of(entries[id], runtime)
        fail(record, Stopped("load", error, reason, "harness"))
        return record

    arguments = [
        "--runtime", runtime, "--cell-timeout", str(timeout), *(["--require-provider"] if require_provider else []),
        *(["--allow-libraries"] if libraries else []),
    ]  # fmt: skip
    records = []
    with (
        tempfile.TemporaryDirectory() as heads,
        contextlib.closing(Cluster(address, store, tell, needs=[RUNTIME.format(runtime)])) as cluster,
    ):
        cluster.connect()
        jobs = list(_jobs(bundle, chosen, runtime, Path(heads), arguments))
        hosts = {worker.name: worker.host for worker in cluster.fit}
        writer, start = begin_run(report, bundle, flags, limited=limited, workers=hosts), time.monotonic()
        finished = False
        try:
            for made in cluster.records(jobs, partial(_run, store), lost):
                if made is not None:
                    made.record.worker, entry = made.worker, entries[made.cell]
                    records.append(conclude(made.record, bundle, entry, required=required, libraries=libraries))
                    writer.add(records[-1].as_dict())
                    on_record(records[-1])
            finished = True
        except SchedulerLost:
            text = f"the scheduler at {address} is gone; {len(chosen) - len(records)} cells were not run"
            raise UserError(f"{text}. What was run is in {report}") from None
        finally:
            writer.close(time.monotonic() - start if finished else None)
    return records


def _run(store: Path, name: str, neighbours: int) -> Run:
    return Run(
        name=name, folder="/", store=str(store.absolute()), store_shown=str(store), roots=(), settings={},
        timeout=0.0, memory_gib=None, neighbours=neighbours,
    )  # fmt: skip


def _jobs(
    bundle: Bundle, chosen: Sequence[Entry], runtime: str, heads: Path, arguments: Sequence[str]
) -> Iterator[CellJob]:
    """A job for each case: a bundle of its own with the cells of the case alone."""
    told = json.loads((bundle.folder / HEAD).read_text(encoding="utf-8"))
    cases: dict[str, list[Entry]] = {}
    for entry in chosen:
        cases.setdefault(entry.case, []).append(entry)
    for number, entries in enumerate(cases.values()):
        names = dict.fromkeys(entry.name for entry in entries)
        head = heads / f"{number}.json"
        own = [entry for entry in told["entries"] if entry["name"] in names]
        head.write_text(json.dumps({**told, "entries": own}), encoding="utf-8")
        files = {f"/{number}/{HEAD}": head}
        for name in names:
            for file in sorted((bundle.folder / CELLS / name).rglob("*")):
                if file.is_file():
                    files[f"/{number}/{file.relative_to(bundle.folder)}"] = file
        digests = {path: hashlib.sha256(file.read_bytes()).hexdigest() for path, file in files.items()}
        yield CellJob(
            tuple(id_of(entry, runtime) for entry in entries),
            replay, partial(_order, number, arguments),
            Freight(digests, {digests[path]: file for path, file in files.items()}), frozenset(), float(len(entries)),
        )  # fmt: skip


def _order(number: int, arguments: Sequence[str], ids: Sequence[str]) -> bytes:
    return json.dumps({"folder": f"/{number}", "arguments": list(arguments), "cells": list(ids)}).encode()
