"""What an engine is built with: shapes, options, precisions, plugins."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt import build as building
from conformance.runtimes.tensorrt.options import Build, Options, covering
from tests.support import PASSED, say, verdict
from tests.tensorrt_runtime.support import AFFINE, BATCHES, LINEAR, PYTHON, run, saved, stored_model


def test_one_profile_covers_all_shapes_with_the_typical_one_inside():
    shapes = covering({"x": (3, 5), "y": (3,)}, [{"x": (1, 9), "y": (1,)}, {"x": (8, 2), "y": (8,)}])
    assert shapes == {"x": ((1, 2), (3, 5), (8, 9)), "y": ((1,), (3,), (8,))}


def test_the_builder_gets_the_options_of_the_case_and_those_of_the_run_go_first(bench, double):
    double()
    options = "tensorrt: {workspace: 1 GiB, optimization_level: 2, tf32: true, typical: {batch: 5}}"
    (cell,) = (cell for cell in bench.cells(say(LINEAR, options), PYTHON) if cell.check == "engine")
    record = bench.run_cell(cell)
    assert verdict(record) == PASSED, record.reason
    told = record.arithmetic["options"]
    assert (told["workspace"], told["optimization_level"], told["tf32"]) == (1024, 2, True)
    again = bench.run_cell(cell, tensorrt={"optimization_level": 5})
    assert again.arithmetic["options"]["optimization_level"] == 5
    assert again.arithmetic["options"]["workspace"] == 1024


class _Config:
    """Notes what a builder's configuration is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.told.append((name, *map(str, given)))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "told":
            self.told.append((name, str(value)))


HALF_BODY = """(float[2] x, bool c) => (float[2] y) {
    y = If(c) <then_branch = t () => (float[2] p) { h = Cast<to=10>(x)  p = Cast<to=1>(h) },
               else_branch = e () => (float[2] q) { q = Neg(x) }>
}"""
QUANTIZED = """(float[2] x) => (float[2] y) <float s = {0.5}, int8 o = {0}>
    { q = QuantizeLinear(x, s, o)  y = DequantizeLinear(q, s, o) }"""


@pytest.mark.parametrize("model, flags", [
    (AFFINE, []), (QUANTIZED, ["INT8"]), (HALF_BODY, ["FP16"]),
    ("(float16[2] x) => (float16[2] y) { y = Add(x, x) }", ["FP16"]),
    ("(float[2] x) => (float[2] y) <float16[1] w = {1}> { h = CastLike(x, w)  y = CastLike(h, x) }", ["FP16"]),
    ("(float[2] x) => (float[2] y) {c = Constant<value=float16[1]{1}>() d = Cast<to=1>(c) y = Add(x, d) }", ["FP16"]),
])  # fmt: skip
def test_only_8_6_is_told_by_flags_which_precisions_the_model_has(
    double, version, model, flags, tmp_path, monkeypatch
):
    double(version)
    import tensorrt

    told: list[str] = []
    build = tensorrt.Builder.build_serialized_network

    def note(self: Any, network: Any, config: Any) -> Any:
        members = tensorrt.BuilderFlag.__members__
        told.extend(name for name, flag in members.items() if config.get_flag(flag))
        return build(self, network, config)

    monkeypatch.setattr(tensorrt.Builder, "build_serialized_network", note)
    with runtime.open_model(saved(tmp_path, model), (), BATCHES if model is AFFINE else Build({})):
        pass
    assert told == (flags if version == "8.6.0" else [])


def test_a_module_in_float16_and_one_that_quantizes_run_on_every_version(bench, double, version):
    double(version)
    half = """
    forward: x * 2
    inputs: {x: "float16[batch, 3]"}
    dims: {batch: 1..4}
    runtimes: tensorrt
    export: {torchscript: [17]}
    """
    assert verdict(run(bench, half, "")) == PASSED
    quantizes = half.replace("x * 2", "torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)")
    assert verdict(run(bench, quantizes.replace("float16", "float32"), "")) == PASSED


def test_tf32_is_off(double, version):
    double(version)
    import tensorrt

    config = _Config()
    building._configure(tensorrt, config, Build({}))
    assert any(one[0] == "clear_flag" and "TF32" in one[1] for one in config.told)


def test_tf32_stays_on_only_where_it_is_declared(double):
    double()
    import tensorrt

    config = _Config()
    building._configure(tensorrt, config, Build({}, options=Options(tf32=True)))
    assert not any(one[0] == "clear_flag" for one in config.told)


def test_networks_are_strongly_typed_where_the_version_has_it(double, version):
    double(version)
    import tensorrt

    flags = tensorrt.NetworkDefinitionCreationFlag
    wanted = flags.EXPLICIT_BATCH if version == "8.6.0" else flags.STRONGLY_TYPED
    assert building._network_flags(tensorrt) == 1 << int(wanted)


def test_a_shape_outside_the_profile_is_refused_with_both(bench, double, tmp_path):
    double()
    model = stored_model(bench)
    build = Build({"x": ((1, 6), (2, 6), (4, 6))})
    with runtime.open_model(model, (), build) as session:
        assert session.run({"x": np.zeros((4, 6), np.float32)})[0].shape == (4, 4)
        with pytest.raises(ValueError, match=r"x has shape \(5, 6\), the engine is built for \(1, 6\) to \(4, 6\)"):
            session.run({"x": np.zeros((5, 6), np.float32)})


def test_a_plugin_library_is_loaded_and_asked_for_its_creators(double, tmp_path, monkeypatch):
    double()
    import tensorrt

    source, library = tmp_path / "plugin.c", tmp_path / "libplugin.so"
    source.write_text("int getCreators(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    asked: list[str] = []

    class Registry:
        def load_library(self, name: str) -> None:
            asked.append(name)

    monkeypatch.setattr(tensorrt, "get_plugin_registry", Registry)
    monkeypatch.setattr(tensorrt, "init_libnvinfer_plugins", lambda log, namespace: True)
    for _ in range(2):  # TensorRT refuses to load it again
        building.load_plugins(tensorrt, None, Build({}, options=Options(plugins=(str(library),))))
    assert asked == [str(library)]
    with pytest.raises(OSError, match="missing"):
        building.load_plugins(tensorrt, None, Build({}, options=Options(plugins=(str(tmp_path / "missing.so"),))))
