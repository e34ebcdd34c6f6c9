"""Where the doubles are, the case and the models that engines are built of, and how a cell of it is run."""

import tempfile
from pathlib import Path
from typing import Any

import onnx

from conformance.runtimes.tensorrt.build_options import Build
from tests.kit.cases import Bench, say
from tests.kit.models import model_of
from tests.kit.modules import net_of

DOUBLES = Path(__file__).parent.parent.parent / "doubles"
CUDA_PYTHON = DOUBLES / "cuda_python"
"""Where the double of cuda-python lies, apart from the others: PyTorch imports the real one."""
DRIVERS = ("pycuda", "cuda-python")
VERSIONS = ("8.6.0", "10.12.0", "11.0.0")

LINEAR = say(
    "module: beside.Net", 'inputs: {x: "float32[batch, 6]"}', "dims: {batch: 1..8}",
    "runtimes: [onnxruntime, tensorrt]", "export: {torchscript: [17]}",
)  # fmt: skip
PYTHON = net_of("self.two(torch.relu(self.one(x)))", one="Linear(6, 16)", two="Linear(16, 4)")
PRECISIONS = "precisions: {fp16: {}, int8: {}}\ntolerance: {int8: {sqnr: 15 dB, because: a tiny network}}"


def run(
    bench: Bench, body: str = LINEAR, python: str = PYTHON, check: str = "accuracy", precision: str = "fp32"
) -> Any:
    """The record of the only such cell, with a store of its own: engines are kept between cells."""
    bench = Bench(bench.folder, Path(tempfile.mkdtemp(dir=bench.folder)) / "store")
    return bench.run_cell(bench.cell(body, python, check=check, runtime="tensorrt", precision=precision), examples=3)


def saved(folder: Path, text: str) -> Path:
    """A model in ONNX's textual form, as a file."""
    file = folder / "model.onnx"
    onnx.save(model_of(f"g {text}"), file)
    return file


AFFINE = "(float[N,3] x) => (float[N,3] y, float[N,3] z) <float[3] w = {1, 2, 3}> { y = Mul(x, w)  z = Neg(y) }"
BATCHES = Build({"x": ((1, 3), (2, 3), (4, 3))})


def stored_model(bench: Bench) -> Path:
    cell = bench.cell(LINEAR, PYTHON, check="export")
    sha = bench.run_cell(cell).graph["sha"]
    return next(file for file in bench.store.rglob("model.onnx") if sha in (file.parent / "meta.json").read_text())
