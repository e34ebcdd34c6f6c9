"""Verified examples a second of a small operator, once its model is loaded."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Row, in_turn, seconds_of
from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.process.worker.warm import new_worker

CASE = """
softsign:
  about: a small operator
  forward: x / (1 + x.abs())
  inputs: {x: "float32[batch, 5]"}
  dims: {batch: 1..64}
  runtimes: onnxruntime
  specials: false
  export: {exporters}
"""
DRAWS = 4  # value draws a shape, as the harness has it unless a case says otherwise
SHARE = 0.8
"""Of the rate of a bare loop."""


def rows(quick: bool) -> Iterator[Row]:
    """All sides use one thread and one process; the harness's parent only waits for its worker."""
    with tempfile.TemporaryDirectory() as folder:
        harness = _Harness(Path(folder))
        others = _Others()
        size = 100 if quick else 1500
        sides: dict[str, Callable[[], float]] = {
            "harness": lambda: harness.rate(size),
            "bare": lambda: others.rate(others.bare, 4 * size),
            "drawn": lambda: harness.again,
            "polygraphy": lambda: others.rate(others.polygraphy, size // 4),
            "polygraphy one": lambda: others.rate(others.polygraphy_one_by_one, size // 8),
            "assertion": lambda: others.rate(others.assertion, size // 4),
        }
        in_turn(sides, 1)  # imports, bytecode, the store
        found = in_turn(sides, 1 if quick else 5)
    n = found.repeats
    slower = found.ratio("bare", "harness")
    yield Row(
        "examples verified a second, isolation on", f"{found['harness']:,.0f}/s",
        f"a bare loop, {found['bare']:,.0f}/s", f"slower by {slower:.2f}",
        f"at least {SHARE} of its rate", slower.meets(1 / SHARE), n,
    )  # fmt: skip
    yield Row(
        "the same for a case's further cells, whose shapes are drawn already", f"{found['drawn']:,.0f}/s",
        f"a bare loop, {found['bare']:,.0f}/s", f"slower by {found.ratio('bare', 'drawn'):.2f}", repeats=n,
    )  # fmt: skip
    for what, side in (
        ("Polygraphy's Comparator, all inputs in one call", "polygraphy"),
        ("Polygraphy's Comparator, a call for each input", "polygraphy one"),
        ("assert_onnx_program", "assertion"),
    ):
        ratio = f"faster by {found.ratio('harness', side):.1f}"
        yield Row("", f"{found['harness']:,.0f}/s", f"{what}, {found[side]:,.0f}/s", ratio, repeats=n)


class _Harness:
    """``run_cell`` in a worker process, through ``Runner``.

    For each example: its inputs, eager float32, the float64 oracle, the runtime, the comparison, vacuity, the
    note to the parent. Only ``record.examples`` count, which are the verified ones.
    """

    def __init__(self, folder: Path) -> None:
        self._store = folder / "store"
        self._cell = small_cell(folder)
        self.again = 0.0
        """Examples a second of the last measurement for a cell whose shapes another one had drawn."""

    def rate(self, shapes: int) -> float:
        """Examples a second: what many shapes take beyond what few take, so that the start (of the worker,
        the module, the stored model, the session) cancels out. Drawing the shapes counts."""
        few, many = self._measure(10), self._measure(shapes)
        examples = many[0] - few[0]
        self.again = examples / (many[2] - few[2])
        return examples / (many[1] - few[1])

    def _measure(self, shapes: int) -> tuple[int, float, float]:
        """Verified examples, and the seconds of a fresh worker's first and second time at this cell."""
        with new_worker() as worker:
            # the model is in the store after this
            Runner(Settings(store=self._store, examples=1), 600, worker)(self._cell)
        examples: list[int] = []

        def one() -> None:
            record = runner(self._cell)
            if record.status != "passed":
                raise RuntimeError(f"{record.id}: {record.reason}")
            examples.append(record.examples)

        with new_worker() as worker:
            runner = Runner(Settings(store=self._store, examples=shapes), 600, worker)
            first = seconds_of(one)
            return examples[0], first, seconds_of(one)


def small_cell(folder: Path, exporters: str = "{dynamo: [20]}") -> Cell:
    """The accuracy cell of the small operator, from a case file in ``folder``."""
    file = folder / "case.yaml"
    file.write_text(CASE.replace("{exporters}", exporters), encoding="utf-8")
    return next(one for one in plan(load(file)[0]) if one.check == "accuracy")


class _Others:
    """The same module and the same exported model, as one would verify them without the harness. Every side
    keeps its ONNX Runtime session from one example to the next, and draws new values for each."""

    def __init__(self) -> None:
        import onnxruntime
        import torch
        from polygraphy.logger import G_LOGGER

        class Softsign(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x / (1 + x.abs())

        torch.set_num_threads(1)
        G_LOGGER.module_severity = G_LOGGER.CRITICAL
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        self._module = Softsign()
        self._rng = np.random.default_rng(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._program: Any = torch.onnx.export(
                self._module, (torch.ones(3, 5),), dynamo=True, opset_version=20, input_names=["x"],
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False,
            )  # fmt: skip
        self._output = self._program.model_proto.graph.output[0].name
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            self._program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

        def initialize(model: Any) -> Any:
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        self._program.initialize_inference_session(initialize)  # its own has as many threads as there are cores

    @staticmethod
    def rate(side: Callable[[int], None], examples: int) -> float:
        return examples / seconds_of(lambda: side(examples))

    def _inputs(self, examples: int) -> Iterator[Any]:
        for _ in range(0, examples, DRAWS):
            shape = (int(self._rng.integers(1, 65)), 5)
            for _ in range(DRAWS):
                yield self._rng.standard_normal(shape, dtype=np.float32)

    def bare(self, examples: int) -> None:
        """Does for each example what the harness does: inputs with NumPy, four for a shape, eager float32 and
        float64, the runtime, one full comparison; the harness too looks at float64 no closer where that holds."""
        import torch

        for x in self._inputs(examples):
            wanted = self._module(torch.from_numpy(x)).numpy()
            exact = self._module(torch.from_numpy(x).double()).numpy()
            (got,) = self._session.run(None, {"x": x})
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
            if np.abs(exact - wanted).max() > 1e-3:
                raise AssertionError("float32 itself is that far off")

    def polygraphy(self, examples: int) -> None:
        """``Comparator.run`` over all inputs, then ``compare_accuracy``: inputs, eager float32, the runtime, a
        comparison. Its own PyTorch runner is for CUDA, so the reference is added as its guide shows."""
        self._compare([{"x": x} for x in self._inputs(examples)])

    def polygraphy_one_by_one(self, examples: int) -> None:
        """The same with a call of both for each input, as a test for each example would do it."""
        for x in self._inputs(examples):
            self._compare([{"x": x}])

    def _compare(self, feeds: list[dict[str, Any]]) -> None:
        import torch
        from polygraphy.backend.onnxrt import OnnxrtRunner
        from polygraphy.comparator import Comparator

        results = Comparator.run([OnnxrtRunner(self._session)], data_loader=feeds)
        wanted = [{self._output: self._module(torch.from_numpy(feed["x"])).numpy()} for feed in feeds]
        results.add(wanted, runner_name="pytorch")
        if not bool(Comparator.compare_accuracy(results)):
            raise RuntimeError("Polygraphy's comparison failed")

    def assertion(self, examples: int) -> None:
        """``assert_onnx_program`` for each input: inputs, the exported program in eager mode, the runtime, a
        comparison. The program and its session are kept, where torchlib's own tests export for each input."""
        import torch
        from torch.onnx.testing import assert_onnx_program

        for x in self._inputs(examples):
            assert_onnx_program(self._program, args=(torch.from_numpy(x),))
