"""The doubles have the recorded names and signatures of each version, and no others."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.tensorrt_doubles.support import AFFINE, DOUBLES, VERSIONS, Load


def test_what_is_not_recorded_is_refused(load: Load) -> None:
    bench = load()
    trt, builder = bench.trt, bench.trt.Builder(bench.logger)
    config = builder.create_builder_config()
    with pytest.raises(AttributeError, match="has no attribute 'max_workspace'"):
        config.max_workspace = 1
    with pytest.raises(AttributeError):
        builder.create_engine()
    with pytest.raises(AttributeError, match="INT64"):
        _ = trt.DataType.INT64
    with pytest.raises(AttributeError):
        _ = trt.numpy
    with pytest.raises(AttributeError, match=r"can't set|no setter"):
        builder.logger = bench.logger
    config.max_aux_streams = 2
    assert config.max_aux_streams == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda trt, builder: builder.create_network(flag=1),
        lambda trt, builder: builder.create_network(1, 2),
        lambda trt, builder: builder.build_serialized_network(builder.create_network()),
        lambda trt, builder: builder.create_builder_config().set_flag(0),
        lambda trt, builder: builder.create_builder_config().set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1e9),
        lambda trt, builder: builder.create_optimization_profile().set_shape("x", (1,), (1,)),
        lambda trt, builder: builder.create_optimization_profile().set_shape("x", (1.5,), (1,), (1,)),
        lambda trt, builder: trt.Runtime(None),
        lambda trt, builder: trt.INetworkDefinition(),
        lambda trt, builder: 1 << trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH,
        lambda trt, builder: trt.OnnxParser(builder.create_network(1), trt.Logger()).parse("text"),
    ],
)
def test_calls_must_fit_the_recorded_signature(load: Load, call: Callable[[Any, Any], Any]) -> None:
    bench = load()
    with pytest.raises(TypeError):
        call(bench.trt, bench.trt.Builder(bench.logger))


def test_what_is_recorded_but_not_implemented_says_so(load: Load) -> None:
    bench = load()
    network, _ = bench.parse(AFFINE)
    with pytest.raises(NotImplementedError, match=r"INetworkDefinition.add_identity"):
        network.add_identity(network.get_input(0))
    assert not issubclass(NotImplementedError, AttributeError)


def test_enums_are_pybind11s(load: Load) -> None:
    trt = load().trt
    assert (repr(trt.float32), str(trt.DataType.HALF), int(trt.int32)) == ("<DataType.FLOAT: 0>", "DataType.HALF", 3)
    assert trt.DataType.FLOAT != 0
    assert trt.Logger.ERROR < trt.Logger.WARNING
    with pytest.raises(TypeError):
        _ = trt.DataType.FLOAT < trt.DataType.HALF


@pytest.mark.parametrize("version", VERSIONS)
def test_the_surface_is_the_recording_of_its_version(load: Load, version: str) -> None:
    trt = load(version).trt
    recording = json.loads((DOUBLES / f"tensorrt-{version}.json").read_text(encoding="utf-8"))
    assert trt.__version__ == recording["version"]
    public = {name for name in vars(trt) if not name.startswith("_")} - {"DOUBLE"}
    expected = {*recording["classes"], *recording["functions"], *recording["constants"]}
    assert public == {name for name in expected if "." not in name}
    for path, says in recording["classes"].items():
        cls = trt
        for part in path.split("."):
            cls = getattr(cls, part)
        members = {*says.get("members", {}), *says.get("methods", {}), *says.get("properties", {})}
        assert members | set(says.get("constants", {})) <= set(dir(cls)), path
        own = {name for name in vars(cls) if not name.startswith("_")}
        nested = {name.rpartition(".")[2] for name in recording["classes"] if name.startswith(f"{path}.")}
        assert own - nested <= members | set(says.get("constants", {})), path


def test_an_implementation_of_what_no_version_has_is_refused(load: Load) -> None:
    load()
    recorded = importlib.import_module("recorded")
    recordings = [recorded.load(f"tensorrt-{one}.json") for one in VERSIONS]
    wrong = [
        {"Builder": type("Builder", (), {"make_it_fast": lambda self: None})},
        {"Builder": type("Builder", (), {"create_network": lambda self, flag=0: None})},
        {"Builder": type("Builder", (), {"max_threads": lambda self: 1})},
        {"Nothing": type("Nothing", (), {})},
        {"nothing": lambda: None},
    ]
    for one in wrong:
        with pytest.raises((AttributeError, TypeError), match="the double"):
            recorded.build(recordings[0], one, recordings[1:])


def _has(recording: dict[str, Any], path: str) -> bool:
    name, _, member = path.partition(".")
    cls = recording["classes"].get(name)
    kinds = ("members", "methods", "properties", "constants")
    return cls is not None and (not member or any(member in cls.get(kind, {}) for kind in kinds))


def test_the_recordings_agree_with_the_vendors_lists_of_changes() -> None:
    recordings = {v: json.loads((DOUBLES / f"tensorrt-{v}.json").read_text(encoding="utf-8")) for v in VERSIONS}
    changes = json.loads((DOUBLES / "changes.json").read_text(encoding="utf-8"))
    for version, change in ((key, one) for key, one in changes.items() if key != "about"):
        before, after = recordings[change["since"]], recordings[version]
        assert [one for one in change["removed"] if not _has(before, one)] == []
        assert [one for one in change["removed"] if _has(after, one)] == []
        assert [one for one in change["added"] if _has(before, one) or not _has(after, one)] == []


def test_it_is_plain_that_it_is_a_double(load: Load) -> None:
    bench = load()
    assert bench.trt.DOUBLE
    assert bench.cuda.Device(0).name() == "TensorRT double (no GPU)"
    found = {one.name: one.version for one in importlib.metadata.distributions(path=[str(DOUBLES)])}
    assert found == {"tensorrt": "0+double", "pycuda": "0+double"}


def test_differences_between_a_recording_and_a_package_are_named(load: Load) -> None:
    load()
    record = importlib.import_module("record")
    try:
        found = list(
            record.differences(
                {"version": "1", "classes": {"A": {"methods": {"f": ["(x)"], "g": ["()"]}}}},
                {"version": "1", "classes": {"A": {"methods": {"f": ["(y)"]}}, "B": {}}},
            )
        )
    finally:
        del sys.modules["record"]
    assert [one.partition(":")[0] for one in found] == ["classes.A.methods.f", "classes.A.methods.g", "classes.B"]
    assert "recorded ['(x)'], the package has ['(y)']" in found[0]
