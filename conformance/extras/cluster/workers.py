"""The workers of a cluster as the process of the tests sees them: which are there, what they have, which fit."""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

from conformance.extras.cluster.admission import Admission
from conformance.extras.cluster.host_facts import python
from conformance.extras.cluster.run_description import mark
from conformance.process.errors import UserError
from conformance.results.records.environment import code, versions

ANSWER = 10.0
"""Seconds in which a scheduler has to answer, and its workers have to say what they are."""
REFUSED = 3.0
"""Seconds in which another worker may come where none of those that are there fits."""
_LOOK = 2.0  # seconds between looks at which workers are there

LOCAL = "local:"


class SchedulerLost(Exception):
    """The scheduler has gone away in the middle of a run."""


@dataclass
class DaskWorker:
    """Hold what a worker has said of itself."""

    name: str
    facts: Mapping[str, Any]
    refused: Sequence[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return str(self.facts.get("host", "an unknown host"))


class Workers:
    """A connection to a scheduler; ``connect`` raises UserError where there is no use in going on."""

    def __init__(
        self,
        address: str,
        store: Path,
        tell: Callable[[str], object],
        *,
        needs: Sequence[str] = (),
        packages: Mapping[str, str] | None = None,
        commands: Sequence[str] = (),
        patience: float = 60.0,
    ) -> None:
        """``address`` is that of a Dask scheduler, or ``local:N``; ``tell`` is given a line at a time.

        ``needs`` are words that each worker has to have, ``packages`` the versions of distributions that cases need,
        ``commands`` what else they need on the path of a worker.
        Without them, a worker may have another Python and other versions of anything but this package: as it is where
        what was exported elsewhere is run. ``patience`` are the seconds that the run waits for a worker, at its start
        and whenever there is none that fits.
        """
        self.patience = patience
        self._address, self._needs, self._packages, self._store = address, list(needs), packages, store
        self._commands = list(commands)
        self._tell = tell
        self.name = f"conformance-{secrets.token_hex(6)}"
        self.workers: dict[str, DaskWorker] = {}
        """Those that are there and have said what they are, by address; also those that do not fit."""
        self.known: dict[str, DaskWorker] = {}
        """Also those that are gone."""
        self.events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        """What came of the workers and of what they run, and was not yet taken up."""
        self._local: LocalCluster | None = None
        self.client: Client | None = None
        """The connection, once there is one."""
        self._seen = time.monotonic()

    @property
    def fit(self) -> list[DaskWorker]:
        """The workers that may run something."""
        return [worker for worker in self.workers.values() if not worker.refused]

    def absence(self, runtime: str) -> str | None:
        """Say why no worker can run a runtime; None where there is one that can."""
        absences = [worker.facts["absences"].get(runtime, "is not known there") for worker in self.fit]
        return None if None in absences or not absences else f"no worker of the cluster has it: {absences[0]}"

    def connect(self) -> None:
        """Wait for workers. UserError where there is no scheduler, or no worker that fits."""
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what it has to say is told by this class
        with contextlib.suppress(OSError):  # no worker shares a store that cannot be written
            mark(self._store, self.name).parent.mkdir(parents=True, exist_ok=True)
            mark(self._store, self.name).touch()
        self.client = self._connected()
        self.client.subscribe_topic(self.name, lambda event: self.events.put(("event", event[1])))
        wanted = {"run": self.name, "code": code(), "needs": self._needs, "packages": self._packages or {}}
        wanted["commands"] = self._commands
        if self._packages is not None:
            wanted["python"] = python()
            wanted["versions"] = {name: version for name, version in versions().items() if version is not None}
        _briefly(lambda client: client.register_plugin(Admission(json.dumps(wanted)), name=self.name), self.client)
        told = False
        start = time.monotonic()
        while not self._has_enough(time.monotonic() - start):
            waited = time.monotonic() - start
            if waited > (REFUSED if self.workers and self._all_told() else self.patience):
                raise UserError(self._nobody())
            if waited > ANSWER and not told and not self.workers:
                told = True
                self._tell(f"{self._address}: no worker yet; start one with: dask worker {self._scheduler()}")
            with contextlib.suppress(queue.Empty):
                self._hear_worker(self.events.get(timeout=0.1)[1])

    def _connected(self) -> Client:
        try:
            if self._address.startswith(LOCAL):
                self._local = _local(int(self._address.removeprefix(LOCAL)), self._store)
                return Client(self._local, timeout=ANSWER, set_as_default=False)
            return Client(self._address, timeout=ANSWER, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            said = str(error).strip().splitlines() or ["no answer"]
            raise UserError(f"no scheduler answers at {self._address}: {said[-1]}") from None

    def _scheduler(self) -> str:
        assert self.client is not None
        return str(self.client.scheduler.address) if self.client.scheduler else self._address

    def _has_enough(self, waited: float) -> bool:
        """Return whether all workers have said what they are, and one of them fits."""
        if self._local is not None and len(self._there()) < len(self._local.workers):
            return False
        return bool(self.fit) and (self._all_told() or waited > ANSWER)

    def _all_told(self) -> bool:
        return self._there() <= self.workers.keys()

    def _there(self) -> set[str]:
        assert self.client is not None
        info = self.client.scheduler_info(n_workers=-1)
        return set(info["workers"])

    def _nobody(self) -> str:
        if not self.workers:
            return f"{self._address} has no worker; start one with: dask worker {self._scheduler()}"
        return f"{self._address} has no worker that fits:\n" + "\n".join(map(_not_used, self.workers.values()))

    def _hear_worker(self, told: Mapping[str, Any]) -> None:
        """Take what a worker says of itself, or that it cannot write."""
        if told["kind"] == "unfit":
            worker = self.known[told["address"]]
            worker.refused = [told["reason"]]
            self._tell(_not_used(worker))
            return
        worker = DaskWorker(told["name"], told["facts"], told["refused"])
        self.workers[told["address"]] = self.known[told["address"]] = worker
        if worker.refused:
            self._tell(_not_used(worker))

    def _look(self, *, at_once: bool = False) -> None:
        """Note now and then, or at once, which workers are gone; raise SchedulerLost."""
        assert self.client is not None
        if self.client.status != "running":
            raise SchedulerLost(self._address)
        if not at_once and time.monotonic() - self._seen < _LOOK:
            return
        self._seen = time.monotonic()
        try:
            there = self._there()
        except (
            Exception
        ):  # whatever the layer of Dask that notices first raises: the scheduler is lost, and it says so
            raise SchedulerLost(self._address) from None
        for address in self.workers.keys() - there:
            worker = self.workers.pop(address)
            if not worker.refused:
                self._tell(f"worker {worker.name} on {worker.host} is gone; {len(self.fit)} left")

    def lacking(self, words: Iterable[str]) -> str | None:
        """Name those of these words that no worker has; None where one has all.

        Empty where there are no words, and no worker.
        """
        wanted = set(words)
        if any(wanted <= set(worker.facts["words"]) for worker in self.fit):
            return None
        lacks = [", ".join(sorted(wanted - set(worker.facts["words"]))) for worker in self.fit]
        return min(lacks, key=len) if lacks else ", ".join(sorted(wanted))

    def close(self) -> None:
        """End what still runs, and leave the workers as they were."""
        client, self.client = self.client, None
        if client is not None:
            if client.status == "running":
                _briefly(lambda client: client.unregister_worker_plugin(self.name), client)
            with contextlib.suppress(Exception):  # the scheduler may be gone
                client.close(timeout=ANSWER)
        if self._local is not None:
            self._local.close(timeout=ANSWER)
            self._local = None
        with contextlib.suppress(OSError):
            mark(self._store, self.name).unlink(missing_ok=True)


def _briefly(call: Callable[[Client], object], client: Client) -> None:
    """Have a client do something with all workers, for which it waits as long as a worker answers, and at most for a
    while where some do not. What fails with a worker that ends meanwhile is no failure for the others."""

    def safely() -> None:
        with contextlib.suppress(Exception):  # of a worker that ends meanwhile
            call(client)

    thread = threading.Thread(target=safely, daemon=True)
    thread.start()
    thread.join(ANSWER)


def _local(workers: int, store: Path) -> LocalCluster:
    """A cluster of processes on this machine; what cells take of its memory is bounded for each of them."""
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, memory_limit=0, dashboard_address=None,
        silence_logs=logging.CRITICAL, local_directory=str((store / "cluster").absolute()),
    )  # fmt: skip


def _not_used(worker: DaskWorker) -> str:
    return f"worker {worker.name} on {worker.host} is not used: {', '.join(worker.refused)}"
