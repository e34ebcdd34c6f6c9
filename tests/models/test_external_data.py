"""Values of tensors in files beside a model, wherever in the model the tensors are: they are known, and checked."""

import os
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper, parser

from conformance.case.files.case_file import load
from conformance.case.files.onnx_header import header
from tests.kit.cases import problems_of

pytestmark = pytest.mark.smoke


def outside(name: str, length: int = 8, offset: int = 0) -> TensorProto:
    """A tensor of two floats whose values lie in a file of its name."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", f"{name}.data"), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def graph(initializer: TensorProto | None = None) -> onnx.GraphProto:
    made = parser.parse_graph("g () => (float[2] y) { y = Constant <value = float[2] {1.0, 2.0}> () }")
    if initializer is not None:
        made.initializer.append(initializer)
    return made


def model() -> onnx.ModelProto:
    """A model with tensors in all places that ONNX has for them."""
    made = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    made.graph.initializer.append(outside("initializer"))
    made.graph.node.append(helper.make_node("Constant", [], ["c"], value=outside("constant")))
    made.graph.node.append(
        helper.make_node("If", ["i"], ["b"], then_branch=graph(outside("then")), else_branch=graph(outside("else")))
    )
    body = graph(outside("body"))
    body.node.append(helper.make_node("If", ["i"], ["d"], then_branch=graph(outside("deep")), else_branch=graph()))
    made.graph.node.append(helper.make_node("Loop", ["n", "", "v"], ["l"], body=body))
    constant = helper.make_node("Constant", [], ["y"], value=outside("function"))
    made.functions.append(helper.make_function("own", "F", [], ["y"], [constant], [helper.make_opsetid("", 17)]))
    sparse = made.graph.sparse_initializer.add()
    sparse.values.CopyFrom(outside("sparse", 16, 24))
    return made


PLACES = ("body", "constant", "deep", "else", "function", "initializer", "sparse", "then")


def write(folder: Path, made: onnx.ModelProto) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    for name in PLACES:
        (folder / f"{name}.data").write_bytes(bytes(40))
    return folder / "m.onnx"


def test_files_are_found_wherever_their_tensors_are(tmp_path):
    file = write(tmp_path, model())
    found = header(file).beside
    assert header(file).beside is found  # which is not read again
    assert sorted(found) == [f"{name}.data" for name in PLACES]
    assert (found["then.data"], found["sparse.data"]) == (8, 40)


CASE = "m:\n  about: a file\n  onnx: deep/m.onnx\n"


def test_a_case_depends_on_the_files_beside_the_other_model_that_it_runs(tmp_path):
    for folder in ("deep", "other"):
        write(tmp_path / folder, model())
    other = "  export: {onnx: {opsets: [17], file: other/m.onnx}}\n"
    (tmp_path / "case.yaml").write_text(CASE + other, encoding="utf-8")
    (case,) = load(tmp_path / "case.yaml")
    assert {"deep/then.data", "other/m.onnx", "other/then.data"} <= {*case.says.depends}
    (tmp_path / "other" / "then.data").write_bytes(bytes(7))
    (problem,) = problems_of(tmp_path, CASE + other)
    assert "'other/m.onnx' has values in 'then.data', which is too short" in problem.message


def _pipe(place: Path) -> None:
    place.unlink()
    os.mkfifo(place)


def _cut(place: Path) -> None:
    place.write_bytes(bytes(7))


def _folder(place: Path) -> None:
    place.unlink()
    place.mkdir()


@pytest.mark.parametrize(
    "spoil, told",
    [(_pipe, "which is no regular file"), (_folder, "which is no regular file"),
     (_cut, "which is too short: 7 bytes of at least 8")],
    ids=["a pipe", "a folder", "cut off"],
)  # fmt: skip
def test_what_cannot_be_read_is_told_before_it_is_read(tmp_path, spoil, told):
    write(tmp_path / "deep", model())
    spoil(tmp_path / "deep" / "then.data")
    (problem,) = problems_of(tmp_path, CASE)
    assert told in problem.message and "'then.data'" in problem.message


@pytest.mark.parametrize("name", ["/dev/zero", "../outside.data"])
def test_a_file_elsewhere_is_refused(tmp_path, name):
    made = model()
    made.graph.initializer[0].external_data[0].value = name
    write(tmp_path / "deep", made)
    (problem,) = problems_of(tmp_path, CASE)
    assert "does not lie beside it" in problem.message
