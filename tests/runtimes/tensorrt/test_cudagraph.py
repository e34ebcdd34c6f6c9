"""CUDA graphs: capturing what an engine enqueues, and launching it."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt import engine_session as running
from conformance.runtimes.tensorrt.build_options import Build, BuildOptions
from conformance.runtimes.tensorrt.engine_session import captured
from tests.runtimes.tensorrt.support import AFFINE, BATCHES, saved


class _Driver:
    """The CUDA driver's functions for graphs: notes the calls, and fails at one of them."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self._fails = fails

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*given: Any) -> int:
            self.calls.append(name)
            return 901 if name == self._fails else 0

        return call


class _Graphs(_Driver):
    """The same on the double's streams."""

    def __init__(self) -> None:
        import device_memory as _memory

        super().__init__()
        self._memory, self.tasks = _memory, []

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        self._memory.begin_capture(stream.value)
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        self.tasks = self._memory.end_capture(stream.value)
        return 0

    def cuGraphLaunch(self, graph: Any, stream: Any) -> int:
        for task in self.tasks:
            self._memory.enqueue(stream.value, task)
        self.calls.append("cuGraphLaunch")
        return 0


@pytest.fixture
def graphs(double, version, driver, monkeypatch) -> _Graphs:
    """TensorRT of a version, with a CUDA driver that captures and launches graphs."""
    double(version, driver=driver)
    made = _Graphs()
    monkeypatch.setattr(running, "captured", functools.partial(captured, driver=made))
    return made


def test_a_graph_of_an_engine_is_launched_when_it_is_timed(graphs, tmp_path):
    build = Build(BATCHES.shapes, options=BuildOptions(cuda_graph=True))
    with runtime.open_model(saved(tmp_path, AFFINE), (), build) as session:
        with session.stopwatch({"x": np.ones((3, 3), np.float32)}, transfers=True) as once:
            assert all(once() > 0 for _ in range(3))
        assert graphs.calls.count("cuGraphLaunch") == 3
        assert len(graphs.tasks) == 1  # copies are timed beside it
        assert session.run({"x": np.ones((2, 3), np.float32)})[0].tolist() == [[1, 2, 3]] * 2


def test_an_output_whose_shape_depends_on_values_cannot_be_captured(graphs, tmp_path):
    model = saved(tmp_path, "(float[5] x) => (int64[1,M] y) { y = NonZero(x) }")
    build = Build({"x": ((5,), (5,), (5,))}, options=BuildOptions(cuda_graph=True))
    inputs = {"x": np.ones(5, np.float32)}
    with runtime.open_model(model, (), build) as session:
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"), session.stopwatch(inputs):
            pass
        assert session.run(inputs)[0].shape == (1, 5)


@pytest.mark.parametrize("fails, ends", [
    ("cuStreamEndCapture", "cuStreamEndCapture"), ("cuGraphLaunch", "cuGraphDestroy"),
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
