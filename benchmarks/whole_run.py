"""Whole runs, process start included: against a bare script, from the store, and collecting only."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Row, interleaved

OPERATORS = ("torch.relu(x)", "torch.sigmoid(x)", "torch.tanh(x) * x", "x / (1 + x.abs())", "torch.exp(-x * x)")
OPSETS = (11, 13, 15, 17)
EXAMPLES = 52  # of a cell with one dim: 5 boundary and 8 drawn shapes, 4 value draws each

BARE = '''
"""The same work without the harness: two exports, onnx.checker, a session, {examples} examples for each opset."""
import io, warnings
import numpy as np, onnx, onnxruntime, torch
torch.set_num_threads(1)
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
for index in range({cases}):
    expression = {operators!r}[index % {kinds}]
    class Module(torch.nn.Module):
        def forward(self, x):
            return eval(expression) + index
    module, twin = Module(), Module().double()
    for opset in {opsets!r}:
        for batch in (7, 3):
            buffer = io.BytesIO()
            torch.onnx.export(module, (torch.randn(batch, 5),), buffer, dynamo=False, opset_version=opset,
                              input_names=["x"], dynamic_axes={{"x": {{0: "batch"}}}})
        model = buffer.getvalue()
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for example in range({examples}):
            x = rng.standard_normal((1 + example, 5), dtype=np.float32)
            wanted = module(torch.from_numpy(x)).numpy()
            exact = twin(torch.from_numpy(x).double()).numpy()
            (got,) = session.run(None, {{"x": x}})
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
            assert np.abs(exact - wanted).max() < 1e-3
'''


def rows(quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = 2 if quick else 25
        _write_cases(folder / "cases", cases)
        bare = folder / "bare.py"
        bare.write_text(
            BARE.format(cases=cases, operators=OPERATORS, kinds=len(OPERATORS), opsets=OPSETS, examples=EXAMPLES)
        )
        store = iter(range(100))
        sides = {
            "harness": lambda: _suite(folder, "--store", f"store{next(store)}"),
            "bare": lambda: _run(folder, str(bare)),
        }
        interleaved(sides, 0 if quick else 1)  # writes the bytecode files
        seconds = interleaved(sides, 1 if quick else 3)
        ratio = seconds["harness"] / seconds["bare"]
        cells = 2 * cases * len(OPSETS)
        yield Row(
            f"{cells} cells, TorchScript exporter, whole run", f"{seconds['harness']:.1f} s",
            f"a bare script, {seconds['bare']:.1f} s", f"{ratio:.2f} ×", "at most 1.5 ×", ratio <= 1.5,
        )  # fmt: skip
        _write_cases(folder / "many", 125)
        start = time.perf_counter()
        _suite(folder, "--collect-only", cases="many")
        collected = time.perf_counter() - start
        yield Row("`--collect-only`, 1,000 cells", f"{collected:.1f} s", "", "", "at most 2 s", collected <= 2)
        if not quick:
            yield from _store(folder)


def _store(folder: Path) -> Iterator[Row]:
    """The second run on an unchanged tree: everything is verified again, nothing is exported again."""
    graph = str(Path(__file__).parent.parent / "cases" / "graph")
    for what, arguments in (
        ("`cases/graph`, dynamo exports only", ("--exporter", "dynamo", "-k", "test_export")),
        ("`cases/graph`, all cells", ()),
    ):
        store = f"again{len(arguments)}"
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            _suite(folder, "--store", store, *arguments, cases=graph)
            seconds.append(time.perf_counter() - start)
        ratio = seconds[1] / seconds[0]
        yield Row(
            f"second run from the store: {what}", f"{seconds[1]:.1f} s", f"the first, {seconds[0]:.1f} s",
            f"{ratio:.2f} ×", "at most 0.25 ×", ratio <= 0.25,
        )  # fmt: skip


def _write_cases(folder: Path, cases: int) -> None:
    folder.mkdir()
    for index in range(cases):
        expression = OPERATORS[index % len(OPERATORS)]
        (folder / f"case{index}.yaml").write_text(
            f"case{index}:\n  about: benchmark\n  forward: {expression} + {index}\n"
            "  inputs: {x: 'float32[batch, 5]'}\n  dims: {batch: 1..64}\n"
            f"  runtimes: onnxruntime\n  specials: false\n  export: {{torchscript: {list(OPSETS)}}}\n"
        )


def _suite(folder: Path, *arguments: str, cases: str = "cases") -> None:
    _run(folder, "-m", "pytest", "--pyargs", "conformance", "-q", "--cases", cases, *arguments)


def _run(folder: Path, *arguments: str) -> None:
    # As users have it: with bytecode files, and one thread for each side.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    # 1: some cells of the shipped cases may be red on another host; the time is what counts here
    assert result.returncode in (0, 1), result.stdout[-2000:] + result.stderr[-2000:]
