"""The store of engines: when a kept engine is loaded, and when it is built anew."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt import session as running
from conformance.runtimes.tensorrt.engines import Engines, key
from conformance.runtimes.tensorrt.options import Build
from tests.tensorrt_runtime.support import AFFINE, BATCHES, saved, stored_model

DEPENDS = {"model": "abc", "build": {"precision": "fp16"}, "gpu": {"name": "one", "driver": 1}, "tensorrt": "8.6.0"}


@pytest.mark.parametrize("name, value", [
    ("model", "abd"), ("build", {"precision": "int8"}), ("gpu", {"name": "other", "driver": 1}),
    ("gpu", {"name": "one", "driver": 2}), ("tensorrt", "10.0.0"),
])  # fmt: skip
def test_an_engine_is_kept_for_exactly_what_it_depends_on(tmp_path, name, value):
    engines = Engines(tmp_path)
    engines.put(DEPENDS, b"engine")
    assert engines.get(DEPENDS) == b"engine"
    assert engines.get({**DEPENDS, name: value}) is None
    assert key(DEPENDS) != key({**DEPENDS, name: value})


SPOILT = {
    "cut": lambda data: data[:-1],
    "half": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "shifted": lambda data: b"x" + data,
    "one bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "longer": lambda data: data + b"more",
    "another model's": lambda data: data.replace(b"abc", b"abd"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_damaged_engine_is_never_loaded(tmp_path, spoil):
    engines = Engines(tmp_path)
    engines.put(DEPENDS, b"engine")
    (file,) = tmp_path.glob("*.engine")
    file.write_bytes(spoil(file.read_bytes()))
    assert engines.get(DEPENDS) is None
    engines.put(DEPENDS, b"engine")
    assert engines.get(DEPENDS) == b"engine"


def test_an_engine_of_another_key_under_this_name_is_never_loaded(tmp_path):
    engines, other = Engines(tmp_path), {**DEPENDS, "tensorrt": "10.0.0"}
    engines.put(other, b"foreign")
    (file,) = tmp_path.glob("*.engine")
    file.rename(file.with_name(f"{key(DEPENDS)}.engine"))
    assert engines.get(DEPENDS) is None


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
    assert len(list(tmp_path.glob("*.timings"))) == 1
    assert not list(tmp_path.glob(".new-*"))


def test_a_kept_engine_that_tensorrt_itself_refuses_is_built_again(bench, double, tmp_path, monkeypatch):
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


def test_an_engine_is_not_kept_for_another_way_of_building(double, tmp_path, monkeypatch):
    double()
    model, build = saved(tmp_path, AFFINE), Build(BATCHES.shapes, store=tmp_path / "engines")
    built = []
    for recipe in ("one", "one", "other"):
        monkeypatch.setattr(running, "recipe", lambda recipe=recipe: recipe)
        with runtime.open_model(model, (), build) as session:
            built.append(session.built_seconds is not None)
    assert built == [True, False, True]


def test_what_could_not_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    Engines(tmp_path).put(DEPENDS, b"engine")
    assert Engines(tmp_path).get(DEPENDS) is None
    assert [file.name for file in tmp_path.iterdir()] == [".lock"]
