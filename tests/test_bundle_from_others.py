"""A bundle from somebody else is data: nothing of it runs unasked, and nothing outside of it is read."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conformance import cli
from conformance.bundle.files import _tensors
from conformance.bundle.layout import Bundle
from tests.support import run_suite, write_case
from tests.test_bundle import pack, replay

BODY = """
forward: x @ torch.ones(3, 4)
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..8}
runtimes: onnxruntime
export: {torchscript: [17]}
"""
ID = "accuracy[planted-torchscript-op17-onnxruntime-fp32]"
SECRET = np.arange(7654321, 7654333, dtype=np.float32).reshape(4, 3)


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    code, place = pack(tmp_path_factory.mktemp("packed"), BODY, "", "--runtime", "onnxruntime", "--examples", "4")
    assert code == 0
    return place


@pytest.fixture
def bundle(packed, tmp_path, monkeypatch) -> Path:
    """A copy, in a folder with a secret beside it that is also where the reader stands."""
    place = tmp_path / "others"
    shutil.copytree(packed, place)
    (tmp_path / "secret").write_bytes(SECRET.tobytes())
    monkeypatch.chdir(tmp_path)
    return place


def cell(bundle: Path) -> Path:
    (found,) = (bundle / "cells").iterdir()
    return found


def edit(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    head = json.loads((bundle / "bundle.json").read_text())
    change(head["entries"][0])
    (bundle / "bundle.json").write_text(json.dumps(head))


def edit_model(bundle: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    file = cell(bundle) / "model.onnx"
    model = onnx.load(file)
    change(model)
    file.unlink()  # it may be a hard link to the store's
    file.write_bytes(model.SerializeToString())


def external(tensor: TensorProto, location: str, **more: object) -> TensorProto:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def refused(bundle: Path, *parts: str) -> None:
    """Its only cell fails before anything of it is loaded, and says what is wrong where."""
    code, records = replay(bundle, "--runtime", "onnxruntime")
    (record,) = records.values()
    assert code == 1
    assert (record["status"], record["stage"], record["error"]) == ("failed", "declare", "BadBundle")
    for part in parts:
        assert part in record["reason"], record["reason"]
    assert "76543" not in json.dumps(record)
    assert record["examples"] == 0


def not_read(bundle: Path, capsys: pytest.CaptureFixture[str], *parts: str, arguments: tuple[str, ...] = ()) -> None:
    """The whole bundle is refused in one line."""
    capsys.readouterr()
    assert cli.main(["replay", str(bundle), "--runtime", "onnxruntime", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for part in parts:
        assert part in line


def test_an_untouched_copy_passes(bundle) -> None:
    assert replay(bundle, "--runtime", "onnxruntime")[0] == 0


# ---- tensors of data sets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["input_0", "output_0", "exact_0"])
def test_external_data_in_a_data_set_is_refused(bundle, kind) -> None:
    tensor = external(numpy_helper.from_array(SECRET, "x"), "secret")
    (cell(bundle) / "test_data_set_0" / f"{kind}.pb").write_bytes(tensor.SerializeToString())
    refused(bundle, f"{kind}.pb", "data_location")


def spoiled(**fields: Any) -> bytes:
    tensor = numpy_helper.from_array(np.ones((2, 3), np.float32))
    for name, value in fields.items():
        tensor.ClearField(name)
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return bytes(tensor.SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff" * 40, spoiled(dims=[10**12]), spoiled(dims=[-1]), spoiled(dims=[2, 4]), spoiled(data_type=0),
        spoiled(data_type=99), spoiled(raw_data=b"\0"), helper.make_tensor("x", TensorProto.STRING, [1], [b"text"])
        .SerializeToString(),
    ],
    ids=["empty", "noise", "huge", "below 0", "too few", "no type", "odd type", "cut", "text"],
)  # fmt: skip
def test_a_tensor_whose_claims_are_not_true_is_refused(bundle, data) -> None:
    (cell(bundle) / "test_data_set_1" / "input_0.pb").write_bytes(data)
    code, records = replay(bundle, "--runtime", "onnxruntime")
    (record,) = records.values()
    assert (code, record["error"], record["fault"]) == (1, "BadBundle", "case")
    assert "test_data_set_1/input_0.pb" in record["reason"]


# ---- the model ----------------------------------------------------------------------------------------------


def weight(model: onnx.ModelProto) -> TensorProto:
    return next(tensor for tensor in _tensors(model) if list(tensor.dims) == [3, 4])


@pytest.mark.parametrize(
    ("location", "part"),
    [
        ("../../../secret", "'..'"), ("a/../../../../secret", "'..'"), ("/etc/hostname", "absolute"),
        ("C:/secret", "absolute"), ("..\\\\secret", "plain path"), ("", "plain path"), ("link", "is a link to"),
        ("fifo", "regular file"), ("missing", "cannot be read"), ("*/_ORT_MEM_ADDR_/*", "no name of a file"),
    ],
)  # fmt: skip
def test_external_data_of_a_model_stays_in_its_folder(bundle, location, part) -> None:
    (cell(bundle) / "link").symlink_to(bundle.parent / "secret")
    os.mkfifo(cell(bundle) / "fifo")
    edit_model(bundle, lambda model: external(weight(model), location))
    refused(bundle, "model.onnx", "external_data", part)


@pytest.mark.parametrize("more", [{"offset": 10**6}, {"length": -1}, {"offset": "x"}, {"basepath": "/"}])
def test_external_data_is_of_bytes_that_are_there(bundle, more) -> None:
    (cell(bundle) / "weights").write_bytes(SECRET.tobytes())
    edit_model(bundle, lambda model: external(weight(model), "weights", **more))
    refused(bundle, "model.onnx", "external_data")


def test_a_models_own_external_data_is_used(bundle) -> None:
    def change(model: onnx.ModelProto) -> None:
        data = weight(model)
        (cell(bundle) / "sub").mkdir()
        (cell(bundle) / "sub" / "weights").write_bytes(numpy_helper.to_array(data).tobytes())
        external(data, "sub/weights", offset=0, length=48)

    edit_model(bundle, change)
    assert replay(bundle, "--runtime", "onnxruntime")[0] == 0


def test_all_tensors_of_a_model_are_looked_at() -> None:
    def tensor(name: str) -> TensorProto:
        return numpy_helper.from_array(np.ones(2, np.float32), name)

    def sparse(name: str) -> onnx.SparseTensorProto:
        indices = numpy_helper.from_array(np.zeros(2, np.int64), f"{name} indices")
        return helper.make_sparse_tensor(tensor(name), indices, [4])

    inner = helper.make_graph([], "inner", [], [], [tensor("in a graph")])
    node = helper.make_node(
        "Odd", [], ["y"], a=tensor("attribute"), g=inner, gs=[inner], s=sparse("sparse attribute")
    )
    node.attribute.append(helper.make_attribute("ts", [tensor("attributes")]))
    graph = helper.make_graph([node], "outer", [], [], [tensor("initializer")], sparse_initializer=[sparse("sparse")])
    function = helper.make_function(
        "own", "F", [], ["y"], [helper.make_node("Constant", [], ["y"], value=tensor("function"))], [],
        attribute_protos=[helper.make_attribute("default", tensor("default"))],
    )  # fmt: skip
    model = helper.make_model(graph, functions=[function])
    training = model.training_info.add()
    training.algorithm.CopyFrom(helper.make_graph([], "a", [], [], [tensor("algorithm")]))
    training.initialization.CopyFrom(helper.make_graph([], "i", [], [], [tensor("initialization")]))
    assert sorted(tensor.name for tensor in _tensors(model)) == sorted([
        "attribute", "in a graph", "in a graph", "sparse attribute", "sparse attribute indices", "attributes",
        "initializer", "sparse", "sparse indices", "function", "default", "algorithm", "initialization",
    ])  # fmt: skip


def test_a_model_of_another_format_is_refused(bundle) -> None:
    file = cell(bundle) / "model.onnx"
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:4] + b"ORTM" + data[8:])
    refused(bundle, "model.onnx", "own format")


# ---- links, and what is no file -----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["model.onnx", "test_data_set_0/input_0.pb", "test_data_set_0", "."])
def test_links_out_of_the_bundle_are_refused(bundle, what) -> None:
    place = cell(bundle) / what
    outside = bundle.parent / "outside"
    place.resolve().rename(outside)
    place.symlink_to(outside)
    refused(bundle, "is a link to", "which is not in")


def test_links_in_the_bundle_are_followed(bundle) -> None:
    file = cell(bundle) / "model.onnx"
    file.rename(bundle / "shared.onnx")
    file.symlink_to("../../shared.onnx")
    assert replay(bundle, "--runtime", "onnxruntime")[0] == 0


def test_links_in_a_circle_end(bundle, capsys) -> None:
    file = cell(bundle) / "model.onnx"
    file.unlink()
    file.symlink_to(file)
    refused(bundle, "model.onnx")
    (bundle / "bundle.json").unlink()
    (bundle / "bundle.json").symlink_to("bundle.json")
    not_read(bundle, capsys, "bundle.json")


@pytest.mark.parametrize("what", ["bundle.json", "model.onnx", "test_data_set_0/input_0.pb"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_what_is_no_regular_file_is_refused_at_once(bundle, capsys, what, kind) -> None:
    place = bundle / what if what == "bundle.json" else cell(bundle) / what
    place.unlink()
    if kind == "device":
        place.symlink_to("/dev/zero")
    else:
        (os.mkfifo if kind == "fifo" else os.mkdir)(place)
    part = "is a link to /dev/zero" if kind == "device" else "is no regular file"
    if what == "bundle.json":
        not_read(bundle, capsys, part)
    else:
        refused(bundle, part)


def test_packing_does_not_write_through_a_link(bundle, tmp_path) -> None:
    outside = tmp_path / "outside"
    (bundle / "cells").rename(outside)
    (bundle / "cells").symlink_to(outside)
    before = sorted(outside.rglob("*"))
    write_case(tmp_path / "cases", BODY)
    assert cli.main(["pack", str(bundle), "--cases", "cases", "--store", "s", "--runtime", "onnxruntime"]) == 0
    assert sorted(outside.rglob("*")) == before
    assert (bundle / "cells").is_dir() and not (bundle / "cells").is_symlink()


# ---- names and options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "/tmp", "..", ".", "", "a\\b", "a\0b", "a\nb", "\ud800", "x" * 256, "C:"]
)
def test_the_name_of_an_entry_is_no_path(bundle, capsys, name) -> None:
    edit(bundle, lambda entry: entry.update(name=name))
    not_read(bundle, capsys, "bundle.json: entries[0].name is ")


@pytest.mark.parametrize(
    "key",
    [
        "session.optimized_model_filepath", "ep.context_file_path", "session.collect_node_memory_stats_to_file",
        "session.load_model_format", "session.use_ort_model_bytes_directly", "session.anything_new",
        "session.model_external_initializers_file_folder_path", "session.enable_profiling",
    ],
)  # fmt: skip
def test_a_session_option_that_may_name_files_is_refused(bundle, tmp_path, capsys, key) -> None:
    edit(bundle, lambda entry: entry.update(config={key: str(tmp_path / "written")}))
    not_read(bundle, capsys, "bundle.json: entries[0].config", key)
    assert not (tmp_path / "written").exists()


def test_a_session_option_that_chooses_kernels_is_taken(bundle) -> None:
    edit(bundle, lambda entry: entry.update(config={"session.x64quantprecision": "1"}))
    _, records = replay(bundle, "--runtime", "onnxruntime")
    assert records[ID]["arithmetic"]["config"] == {"session.x64quantprecision": "1"}


@pytest.mark.parametrize("option", ["--store", "--report"])
def test_engines_and_reports_are_not_those_of_the_bundle(bundle, monkeypatch, capsys, option) -> None:
    not_read(bundle, capsys, option, arguments=(option, str(bundle / "x")))
    monkeypatch.chdir(bundle)
    not_read(Path(), capsys, option.replace("--store", "--report"))  # both defaults are below the working directory


NO_LIBRARY = b"\x7fELF, but no library: to load it fails"


# ---- libraries ----------------------------------------------------------------------------------------------


def with_library(bundle: Path, name: str, field: str = "libraries") -> None:
    def change(entry: dict[str, Any]) -> None:
        (entry if field == "libraries" else entry["build"]["options"])[field] = [name]
        entry["expected"] = {"onnxruntime": [
            {"stage": "load", "error": None, "because": "trust me", "fault": None, "place": "x", "owed": True},
        ]}  # fmt: skip

    edit(bundle, change)


@pytest.mark.parametrize("field", ["libraries", "plugins"])
@pytest.mark.parametrize("name", ["/tmp/evil.so", "../../evil.so", "a\\evil.so"])
def test_a_library_outside_is_refused_though_libraries_are_allowed(bundle, capsys, field, name) -> None:
    with_library(bundle, name, field)
    for arguments in ((), ("--allow-libraries",)):
        not_read(bundle, capsys, field, json.dumps(name), arguments=arguments)


def test_a_link_to_a_library_outside_is_refused(bundle, capsys) -> None:
    (cell(bundle) / "lib.so").symlink_to(bundle.parent / "secret")
    with_library(bundle, "lib.so")
    not_read(bundle, capsys, "is a link to", arguments=("--allow-libraries",))


@pytest.mark.parametrize("field", ["libraries", "plugins"])
def test_a_library_is_not_loaded_unasked_and_the_other_cells_run(bundle, capsys, field) -> None:
    (cell(bundle) / "libraries").mkdir()
    (cell(bundle) / "libraries" / "lib.so").write_bytes(NO_LIBRARY)
    shutil.copytree(cell(bundle), bundle / "cells" / "test_other")
    head = json.loads((bundle / "bundle.json").read_text())
    head["entries"].append({**head["entries"][0], "name": "test_other", "case": "other"})
    (bundle / "bundle.json").write_text(json.dumps(head))
    with_library(bundle, "libraries/lib.so", field)
    code, records = replay(bundle, "--runtime", "onnxruntime")
    assert code == 1
    record = records.pop(ID)
    # What the bundle declares of the cell does not make it green.
    assert (record["status"], record["stage"], record["error"]) == ("failed", "load", "LibrariesNotAllowed")
    assert "libraries/lib.so" in record["reason"] and "--allow-libraries" in record["reason"]
    assert [other["status"] for other in records.values()] == ["passed"]
    # What repeats the refusal does not run the code.
    assert "--allow-libraries" not in record["command"]
    capsys.readouterr()
    code, records = replay(bundle, "--runtime", "onnxruntime", "--allow-libraries", "-k", ID)
    first = capsys.readouterr().out.splitlines()[0]
    digest = hashlib.sha256(NO_LIBRARY).hexdigest()
    assert first.startswith("will load and run ") and first.endswith(f"libraries/lib.so (sha256 {digest})")
    assert "--allow-libraries" in shlex.split(records[ID]["command"])
    assert records[ID]["status"] == ("xfailed" if field == "libraries" else "xpassed")  # ONNX Runtime has no plugins


def test_the_replay_command_of_a_cell_with_libraries_allows_them(tmp_path) -> None:
    """As the suite prints it of a failing cell; the library is one that every host can load and none wants."""
    body = """
    forward: torch.asinh(x)
    inputs: {x: "float32[3]"}
    runtimes: onnxruntime
    specials: false
    libraries: beside.library
    export: {torchscript: {opsets: [17], symbolics: {aten::asinh: beside.symbolic}}}
    """
    python = """
    def library():
        import pathlib
        file = pathlib.Path(__file__).with_name("lib.so")
        file.write_bytes(b"no library")
        return str(file)
    def symbolic(g, x):
        return g.op("Sin", x)
    """
    write_case(tmp_path / "cases", body, python)
    done = run_suite(tmp_path)
    record = done.records[ID]
    assert record["status"] == "failed"
    assert record["bundle_libraries"] == ["libraries/lib.so"]
    # On CI, pytest repeats the whole text in its summary.
    (line,) = {line for line in done.text.splitlines() if line.startswith("without PyTorch: ")}
    assert "--allow-libraries" in shlex.split(line)
    assert [entry.code for entry in Bundle(tmp_path / record["bundle"]).entries] == [["libraries/lib.so"]]


# ---- commands -----------------------------------------------------------------------------------------------


def test_the_command_of_a_replayed_cell_survives_a_copy(bundle, capsys) -> None:
    place = bundle.with_name("their bundle's $(touch planted) & more")
    bundle.rename(place)
    _, records = replay(place, "--runtime", "onnxruntime")
    words = shlex.split(records[ID]["command"])
    assert words[:3] == ["conformance", "replay", str(place)]
    capsys.readouterr()
    assert cli.main([*words[1:], "--report", str(place.parent / "again")]) == 0
    assert "1 cell: 1 passed" in capsys.readouterr().out


def test_a_bundle_whose_name_looks_like_an_option_is_named_so_that_it_is_none(bundle, monkeypatch) -> None:
    place = bundle.rename(bundle.with_name("-k"))
    assert cli.main(["replay", f"./{place.name}", "--runtime", "onnxruntime", "--report", "out"]) == 0
    record = json.loads(Path("out/run.json").read_text())["records"][0]
    words = shlex.split(record["command"])
    assert cli.main([*words[1:], "--report", "again"]) == 0
