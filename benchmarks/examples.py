"""Verified examples a second of a small operator, once its model is loaded."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import Row
from conformance.casefile import load
from conformance.plan import plan
from conformance.runner import Runner
from conformance.settings import Settings

CASE = """
softsign:
  about: a small operator
  forward: x / (1 + x.abs())
  inputs: {x: "float32[batch, 5]"}
  dims: {batch: 1..64}
  runtimes: onnxruntime
  specials: false
  export: {dynamo: [20]}
"""


def rows(quick: bool) -> Iterator[Row]:
    shapes = 100 if quick else 1500
    ours = _harness(shapes)
    bare, polygraphy, program = _others(50 if quick else 400)
    yield Row(
        "examples verified a second, isolation on", f"{ours:,.0f}/s", f"a bare loop, {bare:,.0f}/s",
        f"{bare / ours:.2f} × slower", "3,000/s", ours >= 3000,
    )  # fmt: skip
    yield Row("", "", f"Polygraphy's Comparator, {polygraphy:,.0f}/s", f"{ours / polygraphy:.1f} × faster")
    yield Row("", "", f"assert_onnx_program, {program:,.0f}/s", f"{ours / program:.1f} × faster")


def _harness(shapes: int) -> float:
    """Examples a second of ``run_cell`` in a worker process: what many shapes take beyond what few take, so
    that export, loading and start do not count. Four value draws a shape; float32, float64, the runtime, the
    comparison and vacuity for each."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.yaml"
        file.write_text(CASE)
        cell = next(one for one in plan(load(file)[0]) if one.check == "accuracy")
        seconds, examples = [], []
        with Runner(Settings(store=Path(folder) / "store", examples=1), timeout=600) as warm:
            warm(cell)
        for count in (10, shapes):
            with Runner(Settings(store=Path(folder) / "store", examples=count), timeout=600) as runner:
                runner(cell)
                start = time.perf_counter()
                record = runner(cell)
                seconds.append(time.perf_counter() - start)
                assert record.status == "passed", record.reason
                examples.append(record.examples)
    return (examples[1] - examples[0]) / (seconds[1] - seconds[0])


def _others(count: int) -> tuple[float, float, float]:
    """Examples a second of a bare loop, of Polygraphy and of ``assert_onnx_program``, for the same module and
    model, each with its session kept. The bare loop does per example what the harness does: inputs, eager
    float32 and float64, the runtime, a comparison. The other two compare with eager float32 only."""
    import onnxruntime
    import torch
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.comparator import Comparator
    from polygraphy.logger import G_LOGGER
    from torch.onnx.testing import assert_onnx_program

    class Softsign(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / (1 + x.abs())

    torch.set_num_threads(1)
    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    module = Softsign()
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1 + i % 64, 5), dtype=np.float32)} for i in range(count)]
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module, (torch.ones(3, 5),), dynamo=True, dynamic_shapes=shapes, input_names=["x"], verbose=False
        )
    assert program is not None
    model = program.model_proto.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def bare() -> None:
        for i in range(count):
            x = rng.standard_normal((1 + i % 64, 5), dtype=np.float32)
            wanted = module(torch.from_numpy(x)).numpy()
            exact = module(torch.from_numpy(x).double()).numpy()
            (got,) = session.run(None, {"x": x})
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
            assert np.abs(exact - wanted).max() < 1e-3

    def polygraphy() -> None:
        # Its own PyTorch runner is for CUDA only, so the reference is added as results, as its guide shows.
        results = Comparator.run([OnnxrtRunner(SessionFromOnnx(model, providers=["cpu"]))], data_loader=feeds)
        name = program.model_proto.graph.output[0].name
        results.add([{name: module(torch.from_numpy(feed["x"])).numpy()} for feed in feeds], runner_name="pytorch")
        assert bool(Comparator.compare_accuracy(results))

    def assertion() -> None:
        for feed in feeds:
            assert_onnx_program(program, args=(torch.from_numpy(feed["x"]),))

    speeds = []
    for side in (bare, polygraphy, assertion):
        side()
        start = time.perf_counter()
        side()
        speeds.append(count / (time.perf_counter() - start))
    return speeds[0], speeds[1], speeds[2]
