"""Models with as many inputs, outputs and open dims as real ones have: what is drawn of them, and that no limit stops
them."""

import itertools
from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper, save

from conformance.case.draw.shapes import ALONE, boundary_sizes, drawn_shapes, shrink, trace_sizes
from conformance.case.files.case_file import read
from conformance.case.files.dims import Dims, Range
from conformance.case.files.limits import TENSORS
from conformance.cells import file_sizes
from conformance.front.cli import main
from tests.kit.bundles import pack, replay
from tests.kit.cases import dims_of, problems_of

LAYERS = 33
"""Of a decoder, with two inputs and two outputs each."""


def decoder(layers: int, *, wrong: int | None = None) -> ModelProto:
    """Return a model of caches: each of its inputs has an open dim of its own, and an output with its sums. Of input
    ``wrong`` rows from the eighth on are left out, and other models are right."""
    ends = {"ax": [0], "from": [0], "to": [7]}
    names, nodes, inputs, outputs = (
        [f"past.{n}.{kind}" for n in range(layers) for kind in ("key", "value")],
        [],
        [],
        [],
    )
    for number, name in enumerate(names):
        used = name
        if number == wrong:
            nodes.append(helper.make_node("Slice", [name, "from", "to", "ax"], [used := "cut"]))
        nodes.append(helper.make_node("ReduceSum", [used, "ax"], [f"new.{name}"], keepdims=0))
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"d{number}", 2]))
        outputs.append(helper.make_tensor_value_info(f"new.{name}", TensorProto.FLOAT, [2]))
    values = [helper.make_tensor(name, TensorProto.INT64, [1], value) for name, value in ends.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(folder: Path, *files: str, more: tuple[str, ...] = ()) -> int:
    words = ("--precision", "fp32", "--runtime", "onnxruntime", "--examples", "1", "--store", str(folder / ".store"))
    return main(["check", *(str(folder / file) for file in files), *words, *more])


def open_dims(count: int, said: str = "1..8") -> Dims:
    return Dims.build({f"d{number}": Range.parse(said) for number in range(count)})


# ---- what is drawn -------------------------------------------------------------------------------------------


def test_a_few_dims_are_at_their_ends_one_by_one():
    dims = open_dims(ALONE, "1..64")
    traced = trace_sizes(dims, {})
    shapes = boundary_sizes(dims, traced)
    for name, size in traced.items():
        assert all({**traced, name: end} in shapes for end in (1, 64, 2 * size + 1))
    assert len(shapes) == 4 + 3 * ALONE


@pytest.mark.parametrize("count", [ALONE + 1, 40, 400])
def test_no_more_shapes_are_drawn_of_hundreds_of_dims_and_each_is_at_each_of_its_ends(count):
    dims = open_dims(count, "0..64")
    traced = trace_sizes(dims, {})
    shapes = boundary_sizes(dims, traced)
    assert len(shapes) <= 4 + 2 * ALONE and shapes[:3] == [
        traced,
        dict.fromkeys(traced, 0),
        dict.fromkeys(traced, 64),
    ]
    for name, size in traced.items():
        assert {sizes[name] for sizes in shapes} >= {0, 1, size, min(2 * size + 1, 64), 64}
    columns = {tuple(sizes[name] for sizes in shapes) for name in traced}
    assert len(columns) == count, "some shape tells any two dims apart"


def test_conditions_between_many_dims_take_no_end_away():
    names = [f"d{number}" for number in range(20)]
    forbidden = [f"{one} != {other} * 4" for one, other in itertools.pairwise(names)]
    dims = dims_of(forbidden, **dict.fromkeys(names, "1..8"))
    shapes = boundary_sizes(dims, dict.fromkeys(names, 3))
    assert all(map(dims.allow, shapes)) and len(shapes) < 80
    assert all({sizes[name] for sizes in shapes} >= {1, 8} for name in names)


def test_shapes_of_a_thousand_dims_are_drawn_and_differ():
    dims = open_dims(1000)
    drawn = drawn_shapes(dims, 8, seed=1)
    assert drawn == drawn_shapes(dims, 8, seed=1) != drawn_shapes(dims, 8, seed=2)
    assert len({tuple(sizes.values()) for sizes, _ in drawn}) == 8
    assert all(len({sizes[name] for sizes, _ in drawn}) > 1 for name in dims.ranges)


def test_of_many_dims_the_one_that_a_failure_needs_is_found_in_few_steps():
    dims, tried = open_dims(400), []

    def fails(sizes: dict[str, int]) -> bool:
        tried.append(sizes)
        return sizes["d37"] >= 5

    found = shrink(dims, dict.fromkeys(dims.ranges, 8), fails)
    assert found == {**dict.fromkeys(dims.ranges, 1), "d37": 5} and len(tried) < 40


def test_sizes_of_many_dims_are_found_together():
    calls = []

    def runs(sizes):
        calls.append(sizes)
        return sizes["d5"] == 4 and sizes["d7"] == sizes["d8"]

    names = [f"d{number}" for number in range(120)]
    found = file_sizes.ranges(names, runs, float("inf"), dict.fromkeys(names, 4))
    assert {name for name, sizes in found.items() if sizes == "4"} == {"d5", "d7", "d8"}
    assert {*found.values()} == {"4", "1..8"} and len(calls) < 250


# ---- what has so many ----------------------------------------------------------------------------------------


def test_a_decoder_of_many_layers_is_checked(tmp_path, capsys):
    save(decoder(LAYERS), tmp_path / "net.onnx")
    assert check(tmp_path, "net.onnx") == 0
    assert "sizes: d0 and 65 more 1..8\n" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_wrong_input_among_those_of_a_decoder_is_found_and_its_size_named(tmp_path, capsys):
    save(decoder(LAYERS), tmp_path / "net.onnx")
    save(decoder(LAYERS), tmp_path / "same.onnx")
    save(decoder(LAYERS, wrong=37), tmp_path / "wrong.onnx")
    assert check(tmp_path, "net.onnx", "same.onnx") == 0
    capsys.readouterr()
    assert check(tmp_path, "net.onnx", "wrong.onnx") == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "wrong.onnx is wrong" in told and "d36=1, d37=8, d38=1" in told


def test_a_bundle_of_a_decoder_is_packed_and_replayed(tmp_path):
    (tmp_path / "cases").mkdir()
    save(decoder(LAYERS), tmp_path / "cases" / "net.onnx")
    body = "onnx: net.onnx\nspecials: false\nexamples: {shapes: 0, values: 1, boundary: 2}"
    code, bundle = pack(tmp_path, body, "", "--runtime", "onnxruntime")
    assert code == 0
    code, records = replay(bundle, "--runtime", "onnxruntime")
    assert code == 0 and {record["status"] for record in records.values()} == {"passed"}


@pytest.mark.parametrize("module", [False, True])
def test_more_than_the_limit_are_refused_in_a_sentence(tmp_path, capsys, module):
    if module:
        five = ", ".join(["'float32[n]'"] * 5)
        inputs = f"inputs: {{x: {{layers: 1000, of: [{five}]}}}}"
        text = f"many:\n  about: x\n  forward: x\n  {inputs}\n  dims: {{n: 1..2}}\n"
        (problem,) = problems_of(tmp_path, text)
        told, count = problem.message, 5000
    else:
        save(decoder(TENSORS // 2 + 1), tmp_path / "net.onnx")
        assert check(tmp_path, "net.onnx") == 2
        told, count = capsys.readouterr().err, TENSORS + 2
    assert f"inputs: there are {count:,}, and at most {TENSORS:,} can be" in told


def test_as_many_as_the_limit_are_read(tmp_path):
    save(decoder(TENSORS // 2), tmp_path / "net.onnx")
    (tmp_path / "net.yaml").write_text("net:\n  about: x\n  onnx: net.onnx\n", encoding="utf-8")
    (case,), problems = read(tmp_path / "net.yaml")
    assert problems == [] and len(case.says.inputs) == len(case.says.outputs) == len(case.dims.ranges) == TENSORS
