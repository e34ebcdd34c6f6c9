"""The store of engines: when a kept engine is loaded, and when it is built anew."""

import hashlib
import json

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt.build import recipe
from conformance.runtimes.tensorrt.build_options import Build, BuildOptions
from conformance.runtimes.tensorrt.engines import Engines, key
from tests.runtimes.tensorrt.support import AFFINE, BATCHES, saved, stored_model

DEPENDS = {"model": "abc", "build": {"precision": "fp16"}, "gpu": {"name": "one", "driver": 1}, "tensorrt": "8.6.0"}


@pytest.mark.parametrize("name, value", [
    ("model", "abd"), ("build", {"precision": "int8"}), ("gpu", {"name": "other", "driver": 1}),
    ("gpu", {"name": "one", "driver": 2}), ("tensorrt", "10.0.0"),
])  # fmt: skip
def test_an_engine_is_kept_for_exactly_what_it_depends_on(tmp_path, name, value):
    engines = Engines(tmp_path)
    engines.put(DEPENDS, b"engine")
    assert engines.get(DEPENDS) == b"engine" and engines.get({**DEPENDS, name: value}) is None
    assert key(DEPENDS) != key({**DEPENDS, name: value})


SPOILT = {
    "cut": lambda data: data[:-1],
    "empty": lambda data: b"",
    "one bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "longer": lambda data: data + b"more",
    "another model's": lambda data: data.replace(b"abc", b"abd"),
}


def test_a_damaged_engine_is_never_loaded(tmp_path):
    engines = Engines(tmp_path)
    for what, spoil in SPOILT.items():
        engines.put(DEPENDS, b"engine")
        (file,) = tmp_path.glob("*.engine")
        file.write_bytes(spoil(file.read_bytes()))
        assert engines.get(DEPENDS) is None, what
    engines.put(DEPENDS, b"engine")
    assert engines.get(DEPENDS) == b"engine"


def test_the_second_session_loads_the_first_ones_engine_and_a_spoilt_one_is_built_again(bench, double, tmp_path):
    double()
    model, build = stored_model(bench), Build({"x": ((1, 6), (2, 6), (4, 6))}, store=tmp_path)
    built = []
    for spoil in (False, False, True):
        if spoil:
            (file,) = tmp_path.glob("*.engine")
            file.write_bytes(file.read_bytes()[:-9])
        with runtime.open_model(model, (), build) as session:
            built.append(session.built_seconds is not None)
            session.run({"x": np.zeros((2, 6), np.float32)})
    assert built == [True, False, True]
    assert len(list(tmp_path.glob("*.timings"))) == 1 and not list(tmp_path.glob(".new-*"))


def test_a_kept_engine_that_tensorrt_itself_refuses_is_built_again(bench, double, tmp_path):
    """As one that was made for another GPU under the same name."""
    double()
    model, build = stored_model(bench), Build({"x": ((1, 6), (2, 6), (4, 6))}, store=tmp_path)
    with runtime.open_model(model, (), build):
        pass
    (kept,) = tmp_path.glob("*.engine")
    before = kept.read_bytes()
    head, _, _ = before.partition(b"\n")[2].partition(b"\n")
    other = b"an engine of something else"
    said = json.loads(head) | {"sha256": hashlib.sha256(other).hexdigest()}
    kept.write_bytes(before.partition(b"\n")[0] + b"\n" + json.dumps(said).encode() + b"\n" + other)
    with runtime.open_model(model, (), build) as session:
        assert session.built_seconds is not None
        assert session.run({"x": np.zeros((2, 6), np.float32)})[0].shape == (2, 4)
    assert other not in kept.read_bytes()


def test_an_engine_is_not_kept_for_another_way_of_building(double, tmp_path):
    double()
    model, store = saved(tmp_path, AFFINE), tmp_path / "engines"
    with runtime.open_model(model, (), Build(BATCHES.shapes, store=store)):
        pass
    (kept,) = store.glob("*.engine")
    depends = json.loads(kept.read_bytes().split(b"\n")[1])["depends"]
    assert depends["recipe"] == recipe()
    assert Engines(store).get(depends) and Engines(store).get({**depends, "recipe": "other"}) is None
    for other in (
        Build(BATCHES.shapes, options=BuildOptions(tf32=True), store=store),
        Build({"x": ((1, 3), (2, 3), (8, 3))}, store=store),
    ):
        with runtime.open_model(model, (), other) as session:
            assert session.built_seconds is not None


def test_what_could_not_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / f"{key(DEPENDS)}.engine").mkdir()
    Engines(tmp_path).put(DEPENDS, b"engine")
    assert Engines(tmp_path).get(DEPENDS) is None
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", f"{key(DEPENDS)}.engine"]
