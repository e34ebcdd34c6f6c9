"""CUDA graphs: capturing what an engine enqueues, and launching it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt import session as running
from conformance.runtimes.tensorrt.cudagraph import captured
from conformance.runtimes.tensorrt.options import Build, Options
from tests.tensorrt_runtime.support import AFFINE, BATCHES, saved


class _Driver:
    """The CUDA driver's functions for graphs: notes the calls, and fails at one of them."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            self.calls.append(name)
            return 901 if name == self._fails else 0

        return call


def test_what_is_enqueued_is_captured_once_and_launched_as_often_as_asked():
    driver, enqueued = _Driver(), []
    with captured(7, lambda: enqueued.append(1), driver) as launch:
        launch()
        launch()
    assert enqueued == [1]
    assert driver.calls == [
        "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch",
        "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
    ]  # fmt: skip


class _Graphs:
    """The CUDA driver's functions for graphs, on the double's streams."""

    def __init__(self) -> None:
        from pycuda import _memory

        self._memory, self.tasks, self.launched = _memory, [], 0

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        self._memory.begin_capture(stream.value)
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        self.tasks = self._memory.end_capture(stream.value)
        return 0

    def cuGraphLaunch(self, graph: Any, stream: Any) -> int:
        self.launched += 1
        for task in self.tasks:
            self._memory.enqueue(stream.value, task)
        return 0

    def __getattr__(self, name: str) -> Any:
        assert name in ("cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuGraphDestroy")
        return lambda *given: 0


def test_a_graph_of_an_engine_is_launched_when_it_is_timed(double, version, tmp_path, monkeypatch):
    double(version)
    driver = _Graphs()
    monkeypatch.setattr(running, "captured", functools.partial(captured, driver=driver))
    build = Build(BATCHES.shapes, options=Options(cuda_graph=True))
    with runtime.open_model(saved(tmp_path, AFFINE), (), build) as session:
        with session.stopwatch({"x": np.ones((3, 3), np.float32)}, transfers=True) as once:
            assert all(once() > 0 for _ in range(3))
        assert driver.launched == 3
        assert len(driver.tasks) == 1  # copies are timed beside it
        assert session.run({"x": np.ones((2, 3), np.float32)})[0].tolist() == [[1, 2, 3]] * 2


def test_an_output_whose_shape_depends_on_values_cannot_be_captured(double, version, tmp_path, monkeypatch):
    double(version)
    monkeypatch.setattr(running, "captured", functools.partial(captured, driver=_Graphs()))
    model = saved(tmp_path, "(float[5] x) => (int64[1,M] y) { y = NonZero(x) }")
    build = Build({"x": ((5,), (5,), (5,))}, options=Options(cuda_graph=True))
    inputs = {"x": np.ones(5, np.float32)}
    with runtime.open_model(model, (), build) as session:
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"), session.stopwatch(inputs):
            pass
        assert session.run(inputs)[0].shape == (1, 5)


@pytest.mark.parametrize("fails, ends", [
    ("cuStreamEndCapture", "cuStreamEndCapture"), ("cuGraphInstantiateWithFlags", "cuGraphDestroy"),
    ("cuGraphLaunch", "cuGraphDestroy"),
])  # fmt: skip
def test_a_graph_that_cannot_be_made_says_so_and_leaves_nothing(fails, ends):
    driver = _Driver(fails)
    with pytest.raises(RuntimeError, match="CUDA error 901"), captured(7, lambda: None, driver) as launch:
        launch()
    assert driver.calls[-1] == ends


def test_a_stream_does_not_stay_in_capture_where_the_engine_raises():
    driver = _Driver()

    def enqueue() -> None:
        raise RuntimeError("it does not run")

    with pytest.raises(RuntimeError, match="it does not run"), captured(7, enqueue, driver):
        pass
    assert driver.calls == ["cuStreamBeginCapture_v2", "cuStreamEndCapture"]
