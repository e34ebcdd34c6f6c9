"""``conformance check`` of several files: one run, one report, and which files are no models."""

import json
from pathlib import Path
from xml.etree import ElementTree

import onnx
import onnx.external_data_helper
import pytest
from onnx import ModelProto, save

from conformance.case.files.case_file import load
from conformance.cells.alone import python_of
from conformance.front.cli import main
from conformance.process.disk.model_files import distinct_names, find_models
from conformance.process.errors import UserError
from conformance.process.worker import memory
from conformance.runtimes import registry
from tests.kit.models import model_of

SOUND = model_of("net (float[n, 3] x) => (float[n, 3] y) { y = Abs (x) }")
BREAKS = model_of("net (float[2, 3] x) => (float[2, 4] y) { y = Abs (x) }")
"""Its output has another shape than it says, which the checker refuses."""


def check(folder: Path, *arguments: str) -> int:
    words = ["--store", str(folder / ".store"), "--examples", "1", "--precision", "fp32"]
    return main(["check", *arguments, *words])


def saved(folder: Path, **files: ModelProto) -> None:
    for name, model in files.items():
        file = folder / f"{name.replace('__', '/')}.onnx"
        file.parent.mkdir(parents=True, exist_ok=True)
        save(model, file)


@pytest.mark.smoke
def test_models_of_a_folder_are_checked_in_one_run_with_one_report(tmp_path, capsys):
    saved(tmp_path, a__net=SOUND, b__net=SOUND, b__broken=BREAKS)
    (tmp_path / "notes.txt").touch()
    (tmp_path / "damaged.onnx").write_bytes(b"no model")
    out = tmp_path / "out"
    words = ("--output", f"json={out}/all.json", "--output", f"junit={out}/all.xml", "--jobs", "1")
    assert check(tmp_path, str(tmp_path), *words) == 1
    told = capsys.readouterr().out
    assert "1 other file is no model\n" in told
    assert f"refused 1 of the models: the file is no ONNX model: {tmp_path}/damaged.onnx" in told
    assert f"FAILED  {tmp_path}/b/broken.onnx" in told and f"right   {tmp_path}/a/net.onnx: onnxruntime fp32" in told
    assert "4 models: 2 right, 1 wrong, 0 not verified, 1 cannot be checked" in told
    data = json.loads((out / "all.json").read_text(encoding="utf-8"))
    assert data["exit_code"] == 1 and data["no_models"] == 1
    found = {Path(one["file"]).relative_to(tmp_path).as_posix(): one for one in data["models"]}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "a/net.onnx": "right", "b/net.onnx": "right", "b/broken.onnx": "wrong", "damaged.onnx": "refused",
    }  # fmt: skip
    ids = [record["id"] for one in data["models"] for record in one["records"]]
    assert len(ids) == len({*ids}), "two models of one name are kept apart"
    suites = {Path(suite.get("name", "")).name: suite for suite in ElementTree.parse(out / "all.xml").getroot()}
    assert suites["broken.onnx"].find("testcase/failure") is not None
    assert suites["damaged.onnx"].find("testcase/error") is not None
    assert suites["net.onnx"].get("failures") == "0" and int(suites["net.onnx"].get("tests", "0")) >= 2


def test_a_report_is_printed_and_all_else_goes_elsewhere(tmp_path, capsys):
    saved(tmp_path, net=SOUND)
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--output", "json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["models"][0]["verified"]["onnxruntime"] == ["fp32"]
    assert "passed  accuracy[net-onnx" in told.err
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--output", "junit") == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag == "testsuites"


def test_a_pattern_stands_for_models_and_two_files_are_compared_unless_each_is_meant(tmp_path, capsys):
    saved(tmp_path, a=SOUND, b=model_of("net (float[n, 3] x) => (float[n, 3] y) { y = Neg (x) }"))
    both = [str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")]
    assert check(tmp_path, *both) == 1, "they compute other values"
    for words in ([*both, "--each"], [str(tmp_path / "*.onnx")]):
        capsys.readouterr()
        assert check(tmp_path, *words) == 0
        assert "2 models: 2 right, 0 wrong" in capsys.readouterr().out


def test_files_that_are_no_models_take_one_line_for_each_reason(tmp_path, capsys):
    saved(tmp_path, net=SOUND)
    for number in range(600):
        (tmp_path / f"{number}.txt").touch()
        (tmp_path / f"empty{number}.onnx").touch()
    assert check(tmp_path, str(tmp_path)) == 2
    told = capsys.readouterr()
    assert "600 other files are no models\n" in told.out and "Traceback" not in told.out + told.err
    (line,) = [line for line in told.out.splitlines() if line.startswith("refused")]
    assert line.startswith("refused 600 of the models: the file is empty: ") and line.endswith(" and 597 more")


def test_what_cannot_be_verified_is_no_success_and_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "absence", lambda runtime: "it is not here" if runtime else None)
    saved(tmp_path, a=SOUND, b=SOUND)
    assert check(tmp_path, str(tmp_path)) == 5
    (tmp_path / "c.onnx").touch()
    assert check(tmp_path, str(tmp_path)) == 2


def test_models_of_several_folders_share_a_process_and_modules_of_several_do_not(tmp_path):
    saved(tmp_path, a__net=SOUND, b__net=SOUND)
    python = set()
    for case in ("onnx: net.onnx", "module: net.Net\n  inputs: {x: 'float32[2]'}"):
        for folder in (tmp_path / "a", tmp_path / "b"):
            (folder / "net.yaml").write_text(f"net:\n  about: a test\n  {case}\n", encoding="utf-8")
        python.add(len({python_of(load(folder / "net.yaml")[0]) for folder in (tmp_path / "a", tmp_path / "b")}))
    assert python == {1, 2}


@pytest.mark.parametrize(("words", "said"), [
    (["none/*.onnx"], "no file fits this pattern"), (["."], "there is no .onnx file: no file"),
    ([".", "--output", "yaml"], "there is no format 'yaml'"), ([".", "--output", "json="], "write json, junit"),
    ([".", "--output", "json", "--output", "junit"], "only one report can be printed"),
    (["gone.onnx"], "gone.onnx cannot be read: No such file"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused_with_a_sentence(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["check", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_file_larger_than_all_memory_is_refused_before_it_is_read(tmp_path, monkeypatch, capsys):
    """Its weights beside it count, of which a file without holes would not fit on the disk of a test."""
    net = tmp_path / "net.onnx"
    saved(tmp_path, net=model_of("net (float[n, 3] x) => (float[n, 3] y) <float[3, 3] w = {" + ", ".join("123456789")
                                 + "}> { y = MatMul (x, w) }"))  # fmt: skip
    monkeypatch.setattr(memory, "machine_memory", lambda: 4 * memory.GIB)
    assert check(tmp_path, str(net), "--runtime", "onnxruntime") == 0
    model = onnx.load(net)
    model.graph.initializer[0].raw_data = bytes(36)
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "w.bin", 0, 36)
    net.write_bytes(model.SerializeToString())
    with (tmp_path / "w.bin").open("wb") as weights:
        weights.truncate(5 * memory.GIB)
    assert check(tmp_path, str(net)) == 2
    assert "net.onnx and its weights take 5 GiB, and there are 4 GiB of memory" in capsys.readouterr().err


def test_folders_of_the_store_links_and_recorded_data_are_not_looked_into(tmp_path):
    saved(tmp_path, net=SOUND, _conformance__x=SOUND)
    (tmp_path / "_conformance").rename(tmp_path / ".conformance")
    (tmp_path / "test_data_set_0").mkdir()
    (tmp_path / "test_data_set_0" / "input_0.pb").touch()
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "same.onnx").symlink_to(tmp_path / "net.onnx")
    found = find_models([tmp_path])
    assert found.models == [tmp_path / "net.onnx"] and found.others == 0
    with pytest.raises(UserError, match="1 files of other names"):
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "net.txt").touch()
        find_models([tmp_path / "other"])


def test_names_are_distinct_and_as_short_as_they_can_be():
    files = [Path(name) for name in ("/m/a/net.onnx", "/m/b/net.onnx", "/m/b/own.onnx", "/m/a-b.onnx", "/m/a_b.onnx")]
    assert distinct_names(files) == ["a_net", "b_net", "own", "m_a_b", "m_a_b_2"]
    assert distinct_names([Path("/m/9.onnx")]) == ["model_9"]
    long = distinct_names([Path("/m", "é" * 200 + ".onnx")])
    assert len(long[0].encode()) <= 110
