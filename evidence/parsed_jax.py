"""Compare what TensorRT's parser makes of models by a third exporter, jax2onnx, with what JAX computes."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, Row
from conformance.extras.versions import environments
from conformance.process.errors import NoVerdict, attempt, summarize
from conformance.process.worker import aside
from conformance.runtimes import outputs_of, registry
from conformance.runtimes.tensorrt.network.network_session import open_network
from evidence.counts import none
from evidence.parsed_outputs import SECONDS, compared

PACKAGE = "jax2onnx"
KEPT = ROOT / ".conformance" / "parsed-networks" / PACKAGE
SCRIPT = Path(__file__).with_name("jax_models.py")
Seen = tuple[str, str, str]
"""A model's name, what became of it in one word, and the text about it."""


def _python() -> Path:
    """Return the Python of an environment with JAX, made where it is not there. Raises UserError."""
    python = KEPT / "bin" / "python"
    if not python.exists():
        try:
            environments.install(environments.venv(KEPT), [PACKAGE], "a third exporter")
        except BaseException:
            shutil.rmtree(KEPT, ignore_errors=True)  # a half of it would be taken for the whole
            raise
    return python


def _became(file: Path) -> Seen:
    """Say what becomes of a model; ``unsound`` is one of which ONNX Runtime does not compute what JAX does."""
    import onnx

    kept: Any = np.load(file.with_suffix(".npz"))
    model = onnx.load(file)
    inputs, right, name = {model.graph.input[0].name: kept["x"]}, [kept["right"]], str(kept["name"])
    found = attempt(lambda: compared(outputs_of(model, registry.LITERAL, (), inputs), right))
    if isinstance(found, Exception) or found[0] != "right":
        return name, "unsound", type(found).__name__ if isinstance(found, Exception) else found[1]

    def parsed() -> tuple[str, str]:
        with open_network(file, ()) as session:
            return compared(session.run(inputs), right)

    got = attempt(parsed)
    if isinstance(got, NoVerdict):
        return name, "refused" if "which the check parse is about" in str(got) else "no verdict", str(got)
    return (name, "accused", summarize(got)) if isinstance(got, Exception) else (name, *got)


@functools.cache
def by_jax() -> tuple[str, Sequence[Seen]]:
    """Return the versions of the exporter and of JAX, and what became of each model."""
    with tempfile.TemporaryDirectory() as name:
        # -P: else the folder numbers beside the script is imported for the module of that name
        command = [_python(), "-P", "-W", "ignore", str(SCRIPT), name]
        environment = environments.clean_environment()
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        files = sorted(Path(name).glob("*.onnx"))
        seen = [aside.ask(functools.partial(_became, file), SECONDS) for file in files]
    return done.stdout.splitlines()[-1], seen


def rows() -> Iterator[Row]:
    versions, seen = by_jax()
    counted = Counter("accused" if word == "wrong" else word for _, word, _ in seen)
    told = ", ".join(f"{count} {word}" for word, count in counted.items())
    yield Row(f"models by a third exporter, {versions}", told, f"{len(seen)} functions of JAX")
    sound = len(seen) - counted["unsound"] - counted["refused"]
    yield none("sound models by it that are accused", counted["accused"], f"of {sound} parsed", sound)
