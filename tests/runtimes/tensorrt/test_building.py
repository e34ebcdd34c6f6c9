"""What an engine is built with: shapes, options, precisions, plugins."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt.build_options import Build, BuildOptions, covering
from tests.kit.cases import PASSED, say, verdict
from tests.runtimes.tensorrt.support import AFFINE, BATCHES, LINEAR, PYTHON, saved, stored_model


def test_one_profile_covers_all_shapes_with_the_typical_one_inside():
    shapes = covering({"x": (3, 5), "y": (3,)}, [{"x": (1, 9), "y": (1,)}, {"x": (8, 2), "y": (8,)}])
    assert shapes == {"x": ((1, 2), (3, 5), (8, 9)), "y": ((1,), (3,), (8,))}


def test_the_builder_gets_the_options_of_the_case_and_those_of_the_run_go_first(bench, double):
    double()
    options = "tensorrt: {workspace: 1 GiB, optimization_level: 2, tf32: true, typical: {batch: 5}}"
    cell = bench.cell(say(LINEAR, options), PYTHON, check="engine")
    record = bench.run_cell(cell)
    assert verdict(record) == PASSED, record.reason
    told = record.arithmetic["options"]
    assert (told["workspace"], told["optimization_level"], told["tf32"]) == (1024, 2, True)
    again = bench.run_cell(cell, tensorrt={"optimization_level": 5})
    assert again.arithmetic["options"]["optimization_level"] == 5
    assert again.arithmetic["options"]["workspace"] == 1024


def built(folder: Path, model: str, build: Build, options: BuildOptions | None = None) -> dict[str, Any]:
    """What the double notes of the engine that it builds."""
    build = Build(build.shapes, options=options or BuildOptions(), store=folder / "engines")
    with runtime.open_model(saved(folder, model), (), build):
        pass
    (kept,) = (folder / "engines").glob("*.engine")
    (noted,) = (line for line in kept.read_bytes().split(b"\n") if line.startswith(b'{"gpu"'))
    found: dict[str, Any] = json.loads(noted)
    return found


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
def test_only_8_6_is_told_by_flags_which_precisions_the_model_has(double, version, model, flags, tmp_path):
    """Later networks are strongly typed."""
    double(version)
    noted = built(tmp_path, model, BATCHES if model is AFFINE else Build({}))
    assert noted["flags"] == (flags if version == "8.6.0" else []) and noted["typed"] is (version != "8.6.0")


@pytest.mark.parametrize("declared", [False, True])
def test_tf32_is_off_unless_it_is_declared(double, version, tmp_path, declared):
    double(version)
    assert ("TF32" in built(tmp_path, AFFINE, BATCHES, BuildOptions(tf32=declared))["flags"]) is declared


def test_a_shape_outside_the_profile_is_refused_with_both(bench, double, tmp_path):
    double()
    model = stored_model(bench)
    build = Build({"x": ((1, 6), (2, 6), (4, 6))})
    with runtime.open_model(model, (), build) as session:
        assert session.run({"x": np.zeros((4, 6), np.float32)})[0].shape == (4, 4)
        with pytest.raises(ValueError, match=r"x has shape \(5, 6\), the engine is built for \(1, 6\) to \(4, 6\)"):
            session.run({"x": np.zeros((5, 6), np.float32)})


@pytest.mark.needs("compiler")
def test_a_plugin_library_is_loaded_and_its_creators_registered_once(double, tmp_path):
    double()
    import tensorrt

    source, library = tmp_path / "plugin.c", tmp_path / "libplugin.so"
    source.write_text("int getCreators(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    for _ in range(2):  # TensorRT complains of plugins that are registered already
        built(tmp_path, AFFINE, BATCHES, BuildOptions(plugins=(str(library),)))
    assert tensorrt.get_plugin_registry().load_library(str(library)) is None, "it is registered"
    with pytest.raises(OSError, match="missing"):
        built(tmp_path, AFFINE, BATCHES, BuildOptions(plugins=(str(tmp_path / "missing.so"),)))
