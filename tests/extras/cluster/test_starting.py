"""Workers that are started by the lines of docs/cluster.md: over SSH, and as jobs of Slurm.

The SSH server is a real one, on this machine. Of Slurm there are doubles of its commands, which run the job scripts
that dask-jobqueue writes.
"""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import asyncssh
import pytest

from tests.extras.cluster.support import CELLS, end_group, project, records, run
from tests.kit.processes import PLENTY, gone, waited_for

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.thorough  # each starts all that a cluster consists of
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")

SBATCH = """#!/bin/sh
# A job goes on after this command has ended, with the script as it was when it was submitted.
job=$(mktemp {folder}/job-XXXXXX) && cp "$1" "$job" && chmod +x "$job" || exit 1
setsid "$job" >"$job.log" 2>&1 </dev/null &
echo $! >>{folder}/jobs
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
for job in "$@"; do kill -KILL -- -"$job"; done
"""


@contextlib.contextmanager
def going_on(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command, in a folder of its own where nothing of the project lies, until the block ends."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=log.parent, stdout=out, stderr=out, stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        end_group(process.pid)
        process.communicate()


@pytest.fixture
def place(tmp_path):
    """Where workers are started."""
    (tmp_path / "hosts").mkdir()
    return tmp_path / "hosts"


@pytest.fixture
def slurm(place, monkeypatch):
    """Doubles of the commands of Slurm, whose jobs end with the test."""
    commands = place / "bin"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (commands / name).write_text(text.format(folder=place), encoding="utf-8")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    yield
    for job in (place / "jobs").read_text(encoding="utf-8").split():
        end_group(int(job))


@pytest.fixture
def ssh(place, monkeypatch):
    """An SSH server on this machine that takes the key in ``place / "key"``; its port.

    It skips messages to be ignored, as OpenSSH does: those that paramiko sends every second have no length in front,
    for which asyncssh would hang up.
    """
    handlers = asyncssh.connection.SSHConnection._packet_handlers
    monkeypatch.setitem(handlers, asyncssh.constants.MSG_IGNORE, lambda *_: None)
    key, port = asyncssh.generate_private_key("ssh-ed25519"), Future[int]()
    (place / "key").write_bytes(key.export_private_key())
    (place / "key").chmod(0o600)
    loop, enough = asyncio.new_event_loop(), asyncio.Event()

    async def session(process: asyncssh.SSHServerProcess[bytes]) -> None:
        """What sshd does: the command, in a shell, until it ends or the client hangs up."""
        command = await asyncio.create_subprocess_shell(
            process.command or "true", cwd=place, start_new_session=True,
            env={**os.environ, "SHELL": shutil.which("bash") or "/bin/sh", "HOME": str(place)},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            await process.redirect(stdout=command.stdout)
            process.exit(await command.wait())
        finally:
            end_group(command.pid)
            await command.wait()

    async def serve() -> None:
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            authorized_client_keys=asyncssh.import_authorized_keys(key.export_public_key().decode()),
            process_factory=session, encoding=None, line_editor=False,
        )  # fmt: skip
        async with server:
            port.set_result(server.get_port())
            await enough.wait()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        thread = threading.Thread(target=runner.run, args=[serve()])
        thread.start()
        yield port.result(PLENTY)
        loop.call_soon_threadsafe(enough.set)
        thread.join()


def line_of_the_page(start: str) -> str:
    return next(line.strip() for line in PAGE.splitlines() if line.strip().startswith(start))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    return number


def assert_a_run_is_whole(folder: Path, address: str, workers: str) -> None:
    """All records come, from workers whose names are such, and of all cells the planted one alone is red."""
    outcome = run(folder, address)
    assert outcome.code == 1, outcome.text
    made = records(folder)
    assert len(made) == CELLS and {record["error"] for record in made.values()} == {None, "WrongValue"}
    assert all(re.fullmatch(workers, record["worker"]["name"]) for record in made.values()), made


def test_workers_over_ssh(place, ssh, tmp_path):
    port, log = free_port(), place / "dask-ssh.log"
    line = line_of_the_page("dask ssh ").replace("host-1 host-2", "127.0.0.1 localhost")
    assert "127.0.0.1 localhost --nworkers 4" in line
    command = line.replace("--nworkers 4", "--nworkers 1").split()
    here = ["--ssh-port", str(ssh), "--ssh-private-key", str(place / "key"), "--scheduler-port", str(port)]
    with going_on([sys.executable, "-u", "-m", *command, *here], log):
        waited_for(lambda: log.read_text(encoding="utf-8").count("Registered to") == 2)
        assert_a_run_is_whole(project(tmp_path / "project"), f"tcp://127.0.0.1:{port}", r"tcp://127\.0\.0\.1:\d+")


def test_workers_as_jobs_of_slurm(place, slurm, tmp_path):
    log = place / "python.log"
    lines = [line_of_the_page(start) for start in ("from dask_jobqueue", "cluster = SLURMCluster", "cluster.scale")]
    assert "8786" in lines[1] and "jobs=32" in lines[2]
    program = "\n".join(lines).replace("8786", "0").replace("jobs=32", "jobs=1")
    program += "\nimport sys\nprint('listens at', cluster.scheduler_address, flush=True)\nsys.stdin.read()"
    with going_on([sys.executable, "-c", program], log) as python:
        address = waited_for(lambda: re.search(r"listens at (\S+)", log.read_text(encoding="utf-8")))[1]
        assert_a_run_is_whole(project(tmp_path / "project"), address, r"SLURMCluster-\d+")
        job = int((place / "jobs").read_text(encoding="utf-8"))
        assert "--name SLURMCluster-0" in next(place.glob("job-??????")).read_text(encoding="utf-8")
        python.communicate(timeout=PLENTY)
    assert gone(job)
