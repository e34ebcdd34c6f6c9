"""The ways run: in a first state, and after the change from an empty store, plainly and in all modes."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.results.records.run_file import read_run
from tests.extras.cluster.support import loopback
from tests.plants.depends.surroundings import DEADLINE, LATER, shim
from tests.plants.depends.way import AFTER, BEFORE, Place, Way
from tests.plants.depends.ways import rounds, ways

MODES = ("plain", "reuse", "changed since", "cluster")
GOOD = ("passed", "xfailed")
Records = dict[str, dict[str, Any]]
"""The records of a run by the ids of their cells."""


Verdict = tuple[str, str]
"""How a cell ended, and the graph that it ended with."""


@dataclass
class Outcome:
    """What became of a way."""

    way: Way
    first: dict[str, Verdict]
    """The verdicts of its cells before the change."""
    fresh: dict[str, Verdict]
    """Those after it, from an empty store."""
    stale: dict[str, list[str]] = field(default_factory=dict)
    """By mode: the cells that the change concerns, and whose verdict there is not the one from an empty store."""
    kept: dict[str, bool] = field(default_factory=dict)
    """By mode, and under ``unchanged`` in a run before the change: whether no model was exported again."""

    @property
    def concerned(self) -> list[str]:
        """The cells that the change concerns."""
        return sorted(name for name in self.fresh if self.fresh[name] != self.first.get(name))

    @property
    def broken(self) -> str:
        """Return why the way proves nothing; else empty."""
        if not self.first or any(status not in GOOD for status, _ in self.first.values()):
            return f"not green before the change: {self.first or 'no cell'}"
        red = any(status == "failed" for status, _ in self.fresh.values())
        if self.way.sound:
            return "red after the change" if red else ""
        return "" if red else "not red from an empty store"


def chosen(quick: bool, names: Sequence[str] = ()) -> list[Way]:
    """Return all ways, those that are named, or in quick mode each eighth of the largest round."""
    if names:
        return [way for way in ways() if way.name in names or way.round in names]
    return [way for way in ways() if way.round == "files"][::8] if quick else ways()


@functools.cache
def study(quick: bool, names: tuple[str, ...] = (), folder: Path | None = None) -> list[Outcome]:
    """Return the outcomes of all ways, or of those that are named. What their runs leave stays in ``folder``, where
    one is given."""
    found: list[Outcome] = []
    place = contextlib.nullcontext(str(folder)) if folder else tempfile.TemporaryDirectory(prefix="depends-")
    with place as name:
        for title, these in rounds(chosen(quick, names)).items():
            start = time.monotonic()
            kind = Workers if title == "workers" else Round
            found += kind(Path(name) / title, these).outcomes()
            print(f"{title}: {len(these)} ways in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return found


class Round:
    """Ways that are changed at the same time, in a project of their own."""

    def __init__(self, folder: Path, chosen: Sequence[Way]) -> None:
        self._folder, self._project, self._ways = folder, folder / "project", chosen
        self._places = [Place(self._project, way) for way in chosen]
        self._host = any(way.round in ("host", "processor") for way in chosen)
        self._began = time.time()

    def outcomes(self) -> list[Outcome]:
        """Run everything, and return what became of each way."""
        with answering() as self._server:
            self._write(changed=False)
            self._commit()
            runs = {"first": self._run("first", "store", changed=False)}
            runs["unchanged"] = self._run("unchanged", self._copy("unchanged"), changed=False)
            on_cluster = [place for place in self._places if place.way.cluster]
            if on_cluster:
                self._run("cluster first", "cluster", "--cluster", "local:2", changed=False, places=on_cluster)
            self._write(changed=True)
            self._server.text = str(AFTER)
            runs["fresh"] = self._run("fresh", "fresh", changed=True)
            runs["plain"] = self._run("plain", self._copy("plain"), changed=True)
            runs["reuse"] = self._run("reuse", self._copy("reuse"), "--reuse", self._report("first"), changed=True)
            since = ("--changed-since", "HEAD")
            shutil.copytree(
                self._report("first"), self._report("changed")
            )  # the last run, which says what cells used
            runs["changed since"] = self._run("changed", self._copy("changed"), *since, changed=True)
            if on_cluster:
                cluster = ("--cluster", "local:2")
                runs["cluster"] = self._run("cluster", "cluster", *cluster, changed=True, places=on_cluster)
        return [self._outcome(place, runs) for place in self._places]

    def _outcome(self, place: Place, runs: Mapping[str, Records]) -> Outcome:
        own = {name: _of(place, records) for name, records in runs.items()}
        outcome = Outcome(place.way, _verdicts(own["first"]), _verdicts(own["fresh"]))
        for mode in MODES:
            if mode in own and (mode != "cluster" or place.way.cluster):
                there = _verdicts(own[mode])
                outcome.stale[mode] = [name for name in outcome.concerned if there.get(name) != outcome.fresh[name]]
                outcome.kept[mode] = not any(_made(record) for record in own[mode].values())
        outcome.kept["unchanged"] = not any(_made(record) for record in own["unchanged"].values())
        return outcome

    def _write(self, *, changed: bool) -> None:
        for place in self._places:
            place.write(changed=changed)
            if not changed:
                self._fill(place)
        for folder in ("below", "site"):
            (self._project / folder).mkdir(parents=True, exist_ok=True)
        if self._host:
            (self._folder / "host.so").write_bytes(shim())

    def _fill(self, place: Place) -> None:
        """Write what only a run knows: the port of the server, and when the clock of the other host is beyond."""
        file = place.case / "modules.py"
        text = file.read_text(encoding="utf-8")
        words = {"PORT": str(self._server.server_port), "DEADLINE": str(int(self._began) + DEADLINE)}
        filled = functools.reduce(lambda done, word: done.replace(word, words[word]), words, text)
        if filled != text:
            file.write_text(filled, encoding="utf-8")

    def _commit(self) -> None:
        git = ["git", "-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-C", str(self._project)]
        (self._project / ".gitignore").write_text("site/torch/\n__pycache__/\n", encoding="utf-8")
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", "as it was"], check=True)

    def _copy(self, name: str) -> str:
        """Return the name of a copy of the store that the first run left."""
        shutil.copytree(self._folder / "store", self._folder / f"store of {name}", symlinks=True)
        return f"store of {name}"

    def _report(self, name: str) -> str:
        return str(self._folder / f"report of {name}")

    def _run(
        self, name: str, store: str, *options: str, changed: bool, places: Sequence[Place] | None = None
    ) -> Records:
        """Return the records of a run of pytest."""
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--pyargs", "conformance"]
        for place in places or [Place(self._project, self._ways[0])]:
            command += ["--cases", str(place.case if places else place.case.parent)]
        command += ["--store", str(self._folder / store), "--report", self._report(name), "--examples", "2", *options]
        cwd = self._project / "below" if changed and self._host else self._project
        start = time.monotonic()
        done = subprocess.run(command, cwd=cwd, env=self._environment(changed), capture_output=True, text=True)
        print(f"{self._folder.name}, {name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        (self._folder / f"output of {name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode not in (0, 1, 5):
            raise RuntimeError(f"{command} gave {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
        if not (Path(self._report(name)) / "records.jsonl").exists():
            return {}
        return {record.id: record.as_dict() for record in read_run(Path(self._report(name)))[1]}

    def _environment(self, changed: bool) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        searched = [str(self._project / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        for place in self._places:
            for name, value in place.environment(changed).items():
                if name == "PYTHONPATH":
                    searched.insert(0, str(value))
                elif value is None:
                    environment.pop(name, None)
                else:
                    environment[name] = value
        environment["PYTHONPATH"] = os.pathsep.join(searched)
        if self._host:
            environment["LD_PRELOAD"] = str(self._folder / "host.so")
            environment["DEPENDS_HOST"] = self._host_seen(changed)
        return environment

    def _host_seen(self, changed: bool) -> str:
        if any(way.round == "processor" for way in self._ways):
            (place,) = self._places
            return f"first 5 0 {place.outside / 'cpuinfo'}" if changed else "first 5 0"
        return f"second 7 {LATER}" if changed else "first 5 0"


class Workers(Round):
    """Ways in which one worker of a cluster differs from another one; both see the store."""

    def outcomes(self) -> list[Outcome]:
        """Run everything on the first worker, and then on the second."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with answering() as self._server, loopback(self._folder) as cluster:
            self._write(changed=False)
            self._commit()
            address = cluster.scheduler()
            there = ("--cluster", address)
            one = cluster.workers(address, folder="one", **self._environment(False))
            runs = {name: self._run(name, "store", *there, changed=False) for name in ("first", "unchanged")}
            cluster.end_one(one)
            cluster.workers(address, folder="two", **self._environment(True))
            runs["fresh"] = self._run("fresh", "fresh", *there, changed=False)
            runs["cluster"] = self._run("cluster", "store", *there, changed=False)
        return [self._outcome(place, runs) for place in self._places]


def _of(place: Place, records: Records) -> Records:
    """Return the records of a way's cells."""
    part = f"cases/{place.way.name}/"
    return {name: record for name, record in records.items() if part in str(record["source"]["file"])}


def _verdicts(records: Records) -> dict[str, Verdict]:
    return {name: (str(record["status"]), str(record["graph"])) for name, record in records.items()}


def _made(record: Mapping[str, Any]) -> bool:
    """Return whether the model of a cell was exported in this run; the check ``registration`` exports in any case."""
    return not record["reused"] and record["check"] != "registration" and "export" in record["seconds"]


class Server(http.server.ThreadingHTTPServer):
    """A server on this machine that answers with a text."""

    text = str(BEFORE)


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def answering() -> Iterator[Server]:
    """Yield a running server."""
    with Server(("127.0.0.1", 0), _Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
