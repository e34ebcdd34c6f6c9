"""Adapters of anybody: one writes into its inputs, gives arrays with an arithmetic of their own, or one buffer."""

import contextlib

import numpy as np
import pytest

from conformance.runtimes import opener
from tests.kit.cases import PASSED, case_of, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import ANY_OPTIMIZER, replaced_runtime

BODY = case_of("torch.sin(x)", dims="batch: 1..64")
WRONG = ("failed", "compare", "WrongValue", "runtime")


class Agreeing(np.ndarray):
    """Arrays that are equal to whatever they are compared with, and differ from nothing."""

    def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
        plain = [np.asarray(one) if isinstance(one, np.ndarray) else one for one in inputs]
        given = getattr(ufunc, method)(*plain, **keywords)
        return np.zeros_like(given) if ufunc is np.subtract else given

    def __array_function__(self, function, types, arguments, keywords):
        return True

    def __array__(self, *_, **__):
        raise RuntimeError("not for you")


def zeroing(run, inputs):
    for array in inputs.values():
        array[...] = 0
    return run(inputs)


def zeroing_afterwards(run, inputs):
    outputs = run(inputs)
    for array in inputs.values():
        array[...] = 0
    return outputs


def agreeing(run, inputs):
    return [(output + 1).view(Agreeing) for output in run(inputs)]


def right_in_a_class_of_its_own(run, inputs):
    return [output.view(Agreeing) for output in run(inputs)]


_buffer = np.zeros((64, 3), np.float32)


def one_buffer(run, inputs):
    (output,) = run(inputs)
    _buffer[: len(output)] = output
    return [_buffer[: len(output)]]


def wrong_in_one_buffer(run, inputs):
    return [one_buffer(run, inputs)[0].__iadd__(np.float32(0.1))]


def sessions_that(way):
    def make(original):
        @contextlib.contextmanager
        def open_model(model, libraries, **options):
            with original(model, libraries, **options) as session:
                run = session.run
                session.run = lambda inputs: way(run, inputs)
                yield session

        return open_model

    return replaced_runtime(make, *ANY_OPTIMIZER)


@pytest.mark.parametrize("way, wanted", [
    (zeroing, WRONG), (zeroing_afterwards, PASSED), (agreeing, WRONG), (right_in_a_class_of_its_own, PASSED),
    (one_buffer, PASSED), (wrong_in_one_buffer, WRONG),
])  # fmt: skip
def test_an_adapter_is_judged_by_its_values_alone(bench, way, wanted):
    with sessions_that(way):
        record = bench.run(BODY)
    assert verdict(record) == wanted, record.reason
    assert not record.left_open, record.left_open


@pytest.mark.parametrize("given", [None, {"y": 1}, object()])
def test_what_is_no_array_is_said_of_the_runtime(bench, given):
    with sessions_that(lambda run, inputs: [given]):
        record = bench.run(BODY)
    assert verdict(record)[:3] == ("failed", "run", "TypeError"), record.reason
    assert "in place of an array" in record.reason


@pytest.mark.parametrize("name", ["onnxruntime", "onnx-reference"])
def test_nothing_of_a_session_is_shared_with_who_runs_it(tmp_path, name):
    file = tmp_path / "net.onnx"
    file.write_bytes(model_of("agraph (float[n] x) => (float[n] x2) { x2 = Identity(x) }").SerializeToString())
    given = np.arange(3, dtype=np.float32)
    with opener(name)(file, ()) as session:
        (first,) = session.run({"x": given})
        first[:] = 7
        (again,) = session.run({"x": given})
    np.testing.assert_array_equal(given, [0, 1, 2])
    np.testing.assert_array_equal(again, [0, 1, 2])
