"""A plugin of Dask's workers that says what each is fit for. It travels as this text, and imports nothing of this
package: a worker may have another version of it, or none, and another Python, which could not read bytecode of ours.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin

FACTS = "conformance.extras.cluster.host_facts"
ASK = f"import runpy, sys; sys.path[:1] = []; runpy.run_module({FACTS!r}, run_name='__main__')"
"""Run by the worker's Python, without the folder that it happens to be in on ``sys.path``."""

SLOT = "conformance"
"""The resource of which each worker has one: it runs one case at a time, whoever sends it."""

ASKED = 60.0
"""Seconds in which a worker has to say what it is; a driver or a disk may hang."""

FILES = 1000.0
"""The files that a worker may be handed at a time, which take no time to speak of."""


class Admission(WorkerPlugin):
    """Gives workers that fit a run the resources that its tasks ask for, and tells those that do not, and why."""

    def __init__(self, wanted: str) -> None:
        """``wanted`` is JSON: ``run``, the name of the run; ``code`` that a worker must have, and ``python`` and
        ``versions``, if they are there; ``needs``, words that it must have; ``packages`` and ``commands``, which
        become words."""
        self.wanted = wanted

    def __reduce__(self) -> tuple[object, ...]:
        text = f"(lambda space: (exec({_SOURCE!r}, space), space['Admission']({self.wanted!r}))[1])({{}})"
        return eval, (text,)

    async def setup(self, worker: Any) -> None:
        wanted = json.loads(self.wanted)
        facts, refused = await asked(list(wanted["packages"]))
        refused = refused or refusals(wanted, facts)
        if not refused:
            packages = [name for name, version in wanted["packages"].items() if facts["packages"][name] == version]
            facts["words"] += [f"package {name}" for name in packages]
            facts["words"] += [f"command {name}" for name in wanted["commands"] if shutil.which(name)]
            await worker.set_resources(**resources(wanted["run"], facts["words"]))
        told = {"kind": "worker", "address": worker.address, "name": str(worker.name), "facts": facts}
        worker.log_event(wanted["run"], {**told, "refused": refused})

    async def teardown(self, worker: Any) -> None:
        run = json.loads(self.wanted)["run"]
        tasks = sys.modules.get("conformance.extras.cluster.tasks")
        if tasks is not None:
            await asyncio.to_thread(tasks.end, run)
        await asyncio.to_thread(shutil.rmtree, Path(worker.local_directory) / run, ignore_errors=True)
        await worker.set_resources(**{name: 0 for name in worker.state.total_resources if name.startswith(run)})


async def asked(packages: "list[str]") -> "tuple[dict[str, Any], list[str]]":
    """Return the environment of this worker, and why it cannot be told."""
    command = [sys.executable, "-c", ASK, json.dumps(packages)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), ASKED)
    except asyncio.TimeoutError:
        process.kill()
        return {}, [f"it did not say within {ASKED:g} s what it is"]
    try:
        return json.loads(out.splitlines()[-1]), []
    except (ValueError, IndexError):
        said = err.decode(errors="replace").strip().splitlines() or [f"it ended with {process.returncode}"]
        if "No module named 'conformance" in said[-1]:
            return {}, ["it has no onnx-export-conformance, or an older one"]
        return {}, [f"it cannot say what it is: {said[-1]}"]


def refusals(wanted: "dict[str, Any]", facts: "dict[str, Any]") -> "list[str]":
    """Say why a worker does not fit a run, empty if it does."""
    found = []
    if facts["code"] != wanted["code"]:
        found.append("another version of onnx-export-conformance")
    tasks = sys.modules.get("conformance.extras.cluster.tasks")
    if tasks is not None and facts["code"] != tasks.CODE:
        found.append("onnx-export-conformance was changed since it was started: start it again")
    if wanted.get("python") not in (None, facts["python"]):
        found.append(f"Python {facts['python']} (here {wanted['python']})")
    for name, version in wanted.get("versions", {}).items():
        if facts["versions"].get(name) != version:
            found.append(f"{name} {facts['versions'].get(name) or 'is not installed'} (here {version})")
    found += [f"it has no {word}" for word in wanted["needs"] if word not in facts["words"]]
    return found


def resources(run: str, words: "list[str]") -> "dict[str, float]":
    """Return the resources of a run that a worker with these words has."""
    return {SLOT: 1.0, run: 1.0, f"{run} files": FILES, **{f"{run} {word}": 1.0 for word in words}}


if "__file__" in globals():
    _SOURCE = Path(__file__).read_text(encoding="utf-8")
