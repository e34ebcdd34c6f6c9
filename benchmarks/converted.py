"""Comparing a converted file with its original: ``conformance check`` beside tools that give decibels or differences
of the same two files, in core-seconds of new processes, with empty stores and ONNX Runtime alone.

Each gets as many inputs of the same sizes. ``conformance check`` also runs the original in ONNX Runtime beside ONNX's
evaluator, compares both with the converted file's own meaning, and looks at every weight; ``qdq_loss_debug`` and
winml-cli compare tensors. winml-cli runs by the Python of ``WINML_PYTHON``, an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx

from benchmarks.common import ROOT, Row, Timings, core_seconds_of, in_turn, run_python

EXAMPLES, LIMIT = 52, 2.0
"""Inputs for each tool, as many as ``conformance check`` draws of a network with a batch dim; and how many times the
core-seconds of the quickest other tool it may take."""
CONVERTERS = ("suite-fp16", "static-qdq", "int4", "int4-qdq")
"""Those of ``evidence/converted/convert.py``. ONNX Runtime's own converter to float16 leaves nodes unsorted here."""
NETWORK = "attention-21"
POLYGRAPHY = """
import sys, numpy
sys.modules["torch"] = None  # which it would import, for 2 core-seconds, and does not need
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.comparator import Comparator, CompareFunc

data = [{"x": x} for x in numpy.load("data.npy")]
runners = [OnnxrtRunner(SessionFromOnnx(file)) for file in sys.argv[1:]]
found = Comparator.run(runners, data_loader=data)
Comparator.compare_accuracy(found, compare_func=CompareFunc.simple(check_error_stat="mean"))
"""
LOSS_DEBUG = """
import sys, numpy
from onnxruntime.quantization import CalibrationDataReader, qdq_loss_debug as debug

class Reader(CalibrationDataReader):
    def __init__(self):
        self.left = iter(numpy.load("data.npy"))

    def get_next(self):
        return next(({"x": x} for x in self.left), None)

seen = []
for number, file in enumerate(sys.argv[1:]):
    debug.modify_model_output_intermediate_tensors(file, f"more{number}.onnx")
    seen.append(debug.collect_activations(f"more{number}.onnx", Reader()))
print(debug.compute_activation_error(debug.create_activation_matching(*reversed(seen))))
"""


def rows(quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_python(ROOT, "-W", "ignore", "-m", "evidence.converted.networks", str(folder))
        asked = [f"{one}:{NETWORK}" for one in CONVERTERS[: 1 if quick else None]]
        run_python(folder, "-W", "ignore", str(ROOT / "evidence" / "converted" / "convert.py"), name, *asked)
        data = np.random.default_rng(0).standard_normal((EXAMPLES, 4, 6, 32)).astype(np.float32)
        np.save(folder / "data.npy", data)
        np.savez(folder / "data.npz", x=data.reshape(-1, *data.shape[2:]))
        for one in asked:
            file = f"{one.replace(':', '-')}.onnx"
            onnx.checker.check_model(folder / file)
            sides = _sides(folder, f"{NETWORK}.onnx", file)
            compares = run_python(folder, "-c", LOSS_DEBUG, f"{NETWORK}.onnx", file).strip() != "{}"
            yield from _rows(one.partition(":")[0], in_turn(sides, 1 if quick else 3), compares)


def _sides(folder: Path, original: str, file: str) -> dict[str, Callable[[], float]]:
    def timed(*arguments: str, allowed: tuple[int, ...] = (0,)) -> Callable[[], float]:
        return lambda: core_seconds_of(lambda: run_python(folder, *arguments, allowed=allowed))

    def check() -> float:
        with tempfile.TemporaryDirectory() as store:
            command = ["check", original, file, "--runtime", "onnxruntime", "--store", store]
            return core_seconds_of(lambda: run_python(folder, "-m", "conformance", *command, allowed=(0, 1)))

    sides = {
        "check": check,
        "Polygraphy, torch hidden": timed("-c", POLYGRAPHY, original, file),
        "qdq_loss_debug": timed("-c", LOSS_DEBUG, original, file),
    }
    if python := os.environ.get("WINML_PYTHON"):
        command = [python, "-c", "from winml.modelkit.cli import main; main()", "eval", "--mode", "compare",
                   "--model", file, "--reference", original, "--device", "cpu", "--ep", "cpu",
                   "--input-data", "data.npz"]  # fmt: skip
        offline = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        sides["winml-cli"] = lambda: core_seconds_of(
            lambda: subprocess.run(command, cwd=folder, env=offline, check=True, capture_output=True)
        )
    return sides


def _rows(name: str, found: Timings, compares: bool) -> Iterator[Row]:
    """Yield a row for each other tool; ``compares``: whether ``qdq_loss_debug`` knows any tensor of the file."""
    others = [side for side in found.values if side != "check"]
    quickest = min((one for one in others if compares or one != "qdq_loss_debug"), key=lambda side: found[side])
    for side in others:
        ratio, limited = found.ratio("check", side), side == quickest
        about = "" if compares or side != "qdq_loss_debug" else " (compares nothing)"
        yield Row(
            f"{name}, `conformance check` of two files", f"{found['check']:.1f} core-s",
            f"{side}{about}, {found[side]:.1f} core-s", f"{ratio:.2f}", repeats=found.repeats,
            target=f"at most {LIMIT:g} × the quickest" if limited else "",
            met=ratio.meets(LIMIT) if limited else None,
        )  # fmt: skip
