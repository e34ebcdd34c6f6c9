"""A bundle from somebody else is data: nothing of it runs unasked, and nothing outside of it is read."""

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conformance.front import cli
from tests.kit.bundles import edit_entries, pack, replay
from tests.kit.cases import case_of, write_case

BODY = case_of("x @ torch.ones(3, 4)", "runtimes: onnxruntime", "export: {torchscript: [17]}", dims="batch: 1..8")
ID = "accuracy[planted-torchscript-op17-onnxruntime-fp32]"
SECRET = np.arange(7654321, 7654333, dtype=np.float32).reshape(4, 3)

Damage = Callable[[Path], object]
"""What is done to the folder of a cell."""


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


def edit_model(folder: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    model = onnx.load(folder / "model.onnx")
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def weight(model: onnx.ModelProto) -> TensorProto:
    attributes = (one.t for node in model.graph.node for one in node.attribute if one.HasField("t"))
    return next(tensor for tensor in (*model.graph.initializer, *attributes) if list(tensor.dims) == [3, 4])


def external(tensor: TensorProto, location: str, **more: object) -> TensorProto:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def put(name: str, data: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(data)


def refused(bundle: Path, damages: dict[str, tuple[Damage, list[str]]]) -> None:
    """Cells of a damage each fail before anything of them is loaded, with these parts in the reason, the whole cell
    beside them passes, and nothing of the secret is in a record."""
    whole, head = cell(bundle), json.loads((bundle / "bundle.json").read_text())
    for number, (damage, _) in enumerate(damages.values()):
        folder = whole.with_name(f"test_{number}")
        shutil.copytree(whole, folder)
        head["entries"].append({**head["entries"][0], "name": folder.name, "case": f"damaged{number}"})
        damage(folder)
    (bundle / "bundle.json").write_text(json.dumps(head))
    code, found = replay(bundle, "--runtime", "onnxruntime")
    assert (code, found.pop(ID)["status"]) == (1, "passed")
    for (what, (_, parts)), record in zip(damages.items(), found.values(), strict=True):
        verdict = (record["status"], record["stage"], record["error"], record["fault"], record["examples"])
        assert verdict == ("failed", "declare", "BadBundle", "case", 0), what
        assert "76543" not in json.dumps(record)
        for part in parts:
            assert part in record["reason"], what


def not_read(bundle: Path, capsys: pytest.CaptureFixture[str], *parts: str, arguments: tuple[str, ...] = ()) -> None:
    """The whole bundle is refused in one line."""
    capsys.readouterr()
    assert cli.main(["replay", str(bundle), "--runtime", "onnxruntime", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for part in parts:
        assert part in line


# ---- tensors of data sets -----------------------------------------------------------------------------------
def test_external_data_in_a_data_set_is_refused(bundle):
    data = external(numpy_helper.from_array(SECRET, "x"), "secret").SerializeToString()
    files = [f"{kind}.pb" for kind in ("input_0", "output_0", "exact_0")]
    refused(bundle, {file: (put(f"test_data_set_0/{file}", data), [file, "data_location"]) for file in files})


def spoiled(**fields: Any) -> bytes:
    tensor = numpy_helper.from_array(np.ones((2, 3), np.float32))
    for name, value in fields.items():
        tensor.ClearField(name)
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return bytes(tensor.SerializeToString())


def test_a_tensor_whose_claims_are_not_true_is_refused(bundle):
    file = "test_data_set_0/input_0.pb"
    untrue = {
        "empty": b"", "noise": b"\xff" * 40, "huge": spoiled(dims=[10**12]), "below 0": spoiled(dims=[-1]),
        "too few": spoiled(dims=[2, 4]), "no type": spoiled(data_type=0), "odd type": spoiled(data_type=99),
        "cut": spoiled(raw_data=b"\0"),
        "text": helper.make_tensor("x", TensorProto.STRING, [1], [b"text"]).SerializeToString(),
    }  # fmt: skip
    refused(bundle, {what: (put(file, data), [file]) for what, data in untrue.items()})


# ---- the model ----------------------------------------------------------------------------------------------
def at_location(location: str, **more: object) -> Damage:
    """The weight of a model lies elsewhere."""
    return lambda folder: edit_model(folder, lambda model: external(weight(model), location, **more))


def test_external_data_of_a_model_stays_in_its_folder(bundle):
    parts = {
        "../../../secret": "'..'", "a/../../../../secret": "'..'", "/etc/hostname": "absolute",
        "C:/secret": "absolute", "..\\\\secret": "plain path", "": "plain path", "link": "is a link to",
        "fifo": "regular file", "missing": "cannot be read", "*/a/*": "no name of a file",
    }  # fmt: skip

    def damage(folder: Path, location: str) -> None:
        (folder / "link").symlink_to(bundle.parent / "secret")
        os.mkfifo(folder / "fifo")
        at_location(location)(folder)

    refused(bundle, {
        location: (partial(damage, location=location), ["model.onnx", "external_data", part])
        for location, part in parts.items()
    })  # fmt: skip


def test_external_data_is_of_bytes_that_are_there(bundle):
    (cell(bundle) / "weights").write_bytes(SECRET.tobytes())
    wrong = ({"offset": 10**6}, {"length": -1}, {"offset": "x"}, {"basepath": "/"})
    parts = ["model.onnx", "external_data"]
    refused(bundle, {str(more): (at_location("weights", **more), parts) for more in wrong})


def test_a_models_own_external_data_is_used(bundle):
    def change(model: onnx.ModelProto) -> None:
        data = weight(model)
        (cell(bundle) / "sub").mkdir()
        (cell(bundle) / "sub" / "weights").write_bytes(numpy_helper.to_array(data).tobytes())
        external(data, "sub/weights", offset=0, length=48)

    edit_model(cell(bundle), change)
    assert replay(bundle, "--runtime", "onnxruntime")[0] == 0


TENSORS = (
    "attribute", "in a graph", "sparse attribute", "sparse attribute indices", "attributes", "initializer", "sparse",
    "sparse indices", "function", "default", "algorithm", "initialization",
)  # fmt: skip


def model_of_tensors(outside: str) -> onnx.ModelProto:
    """A model with a tensor in every place that can hold one; that of the given name has its data elsewhere."""

    def tensor(name: str, values: Any = (0, 0), kind: Any = np.float32) -> TensorProto:
        found = numpy_helper.from_array(np.asarray(values, kind), name)
        return external(found, "../../secret") if name == outside else found

    def sparse(name: str) -> onnx.SparseTensorProto:
        indices = tensor(f"{name} indices", kind=np.int64)
        return onnx.SparseTensorProto(values=tensor(name), indices=indices, dims=[4])

    inner = helper.make_graph([], "inner", [], [], [tensor("in a graph")])
    node = helper.make_node("Odd", [], ["y"], a=tensor("attribute"), g=inner, gs=[inner])
    node.attribute.add(name="s", type=onnx.AttributeProto.SPARSE_TENSOR).sparse_tensor.CopyFrom(
        sparse("sparse attribute")
    )
    node.attribute.append(helper.make_attribute("ts", [tensor("attributes")]))
    graph = helper.make_graph([node], "outer", [], [], [tensor("initializer")])
    graph.sparse_initializer.append(sparse("sparse"))
    function = helper.make_function(
        "own", "F", [], ["y"], [helper.make_node("Constant", [], ["y"], value=tensor("function"))], [],
        attribute_protos=[helper.make_attribute("default", tensor("default"))],
    )  # fmt: skip
    model = helper.make_model(graph, functions=[function])
    training = model.training_info.add()
    training.algorithm.CopyFrom(helper.make_graph([], "a", [], [], [tensor("algorithm")]))
    training.initialization.CopyFrom(helper.make_graph([], "i", [], [], [tensor("initialization")]))
    return model


def test_all_tensors_of_a_model_are_looked_at(bundle):
    refused(bundle, {
        name: (put("model.onnx", model_of_tensors(name).SerializeToString()), ["model.onnx", "'..'", name])
        for name in TENSORS
    })  # fmt: skip


def test_a_model_of_another_format_is_refused(bundle):
    data = (cell(bundle) / "model.onnx").read_bytes()
    refused(bundle, {"ORTM": (put("model.onnx", data[:4] + b"ORTM" + data[8:]), ["model.onnx", "own format"])})


# ---- links, and what is no file -----------------------------------------------------------------------------
def move_out(folder: Path, what: str, outside: Path) -> None:
    """A part of a cell lies outside of the bundle, with a link in its place."""
    place = folder / what
    place.resolve().rename(outside)
    place.symlink_to(outside)


def test_links_out_of_the_bundle_are_refused(bundle):
    """Also into a folder beside it whose name begins with its name."""
    refused(bundle, {
        part: (partial(move_out, what=part, outside=bundle.parent / f"others{n}"), ["a link to", "which is not in"])
        for n, part in enumerate(("model.onnx", "test_data_set_0/input_0.pb", "test_data_set_0", "."))
    })  # fmt: skip


def test_links_in_the_bundle_are_followed(bundle):
    file = cell(bundle) / "model.onnx"
    file.rename(bundle / "shared.onnx")
    file.symlink_to("../../shared.onnx")
    assert replay(bundle, "--runtime", "onnxruntime")[0] == 0


IRREGULAR: dict[str, tuple[Damage, str]] = {
    "fifo": (os.mkfifo, "is no regular file"), "folder": (os.mkdir, "is no regular file"),
    "device": (lambda place: place.symlink_to("/dev/zero"), "is a link to /dev/zero"),
    "circle": (lambda place: place.symlink_to(place.name), "cannot be followed"),
}  # fmt: skip


def replace(folder: Path, what: str, kind: str) -> None:
    (folder / what).unlink()
    IRREGULAR[kind][0](folder / what)


def test_what_is_no_regular_file_is_refused_at_once(bundle, capsys):
    refused(bundle, {
        f"{kind} {what}": (partial(replace, what=what, kind=kind), [IRREGULAR[kind][1]])
        for what in ("model.onnx", "test_data_set_0/input_0.pb") for kind in IRREGULAR
    })  # fmt: skip
    for kind, (_, part) in IRREGULAR.items():
        other = shutil.copytree(bundle, bundle.parent / kind, ignore=lambda *_: ["cells"])
        replace(other, "bundle.json", kind)
        not_read(other, capsys, part)


def test_packing_does_not_write_through_a_link(bundle, tmp_path):
    outside = tmp_path / "outside"
    (bundle / "cells").rename(outside)
    (bundle / "cells").symlink_to(outside)
    before = sorted(outside.rglob("*"))
    write_case(tmp_path / "cases", BODY)
    assert cli.main(["pack", str(bundle), "--cases", "cases", "--store", "s", "--runtime", "onnxruntime"]) == 0
    assert sorted(outside.rglob("*")) == before
    assert (bundle / "cells").is_dir() and not (bundle / "cells").is_symlink()


# ---- names and options --------------------------------------------------------------------------------------
def test_the_name_of_an_entry_is_no_path(bundle, capsys):
    names = ["../x", "a/b", "/tmp", "..", ".", "", "a\\b", "a\0b", "a\nb", "\ud800", "x" * 256, "C:", "a/../../b"]
    for name in names:
        edit_entries(bundle, lambda entry, name=name: entry.update(name=name))
        not_read(bundle, capsys, "bundle.json: entries[0].name is ")


def test_a_session_option_that_may_name_files_is_refused(bundle, tmp_path, capsys):
    keys = [
        "session.optimized_model_filepath", "ep.context_file_path", "session.collect_node_memory_stats_to_file",
        "session.load_model_format", "session.use_ort_model_bytes_directly", "session.anything_new",
        "session.model_external_initializers_file_folder_path", "session.enable_profiling",
    ]  # fmt: skip
    for key in keys:
        edit_entries(bundle, lambda entry, key=key: entry.update(config={key: str(tmp_path / "written")}))
        not_read(bundle, capsys, "bundle.json: entries[0].config", key)
    assert not (tmp_path / "written").exists()


def test_a_session_option_that_chooses_kernels_is_taken(bundle):
    edit_entries(bundle, lambda entry: entry.update(config={"session.x64quantprecision": "1"}))
    _, records = replay(bundle, "--runtime", "onnxruntime")
    assert records[ID]["arithmetic"]["config"] == {"session.x64quantprecision": "1"}


def test_engines_and_reports_are_not_those_of_the_bundle(bundle, monkeypatch, capsys):
    for option in ("--store", "--report"):
        not_read(bundle, capsys, option, arguments=(option, str(bundle / "x")))
    monkeypatch.chdir(bundle)
    not_read(Path(), capsys, "--report")  # both defaults are below the working directory
    not_read(Path(), capsys, "--store", arguments=("--report", "../out"))


# ---- libraries ----------------------------------------------------------------------------------------------
NO_LIBRARY = b"\x7fELF, but no library: to load it fails"
FIELDS = ("libraries", "plugins")


def with_library(bundle: Path, name: str, field: str = "libraries", case: str = "planted") -> None:
    """Have a cell name a library, and declare that it fails as it is loaded."""

    def change(entry: dict[str, Any]) -> None:
        if entry["case"] == case:
            (entry if field == "libraries" else entry["build"]["options"])[field] = [name]
            declared = {"stage": "load", "error": None, "because": "trust me", "fault": None, "place": "x"}
            entry["expected"] = {"onnxruntime": [{**declared, "owed": True}]}

    edit_entries(bundle, change)


@pytest.mark.parametrize("field", FIELDS)
def test_a_library_outside_is_refused_though_libraries_are_allowed(bundle, capsys, field):
    for name in ("/tmp/evil.so", "../../evil.so", "a\\evil.so"):
        with_library(bundle, name, field)
        for arguments in ((), ("--allow-libraries",)):
            not_read(bundle, capsys, field, json.dumps(name), arguments=arguments)
    (cell(bundle) / "lib.so").symlink_to(bundle.parent / "secret")
    with_library(bundle, "lib.so", field)
    not_read(bundle, capsys, "is a link to", arguments=("--allow-libraries",))


@pytest.mark.parametrize("field", FIELDS)
def test_a_library_is_not_loaded_unasked_and_the_other_cells_run(bundle, capsys, field):
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


# ---- commands -----------------------------------------------------------------------------------------------
