"""Files travel by their contents, and lie elsewhere as they lie here."""

import pytest

from conformance.extras.cluster.admission import Admission, refusals
from conformance.extras.cluster.freight import below, files_of, lay_out, moved, retold
from conformance.models.kept.dependency_files import Needs, needs
from conformance.results.records.environment import code
from tests.kit.cases import load_case

CASE = "forward: beside.scaled(x)\ninputs: {x: 'float32[3]'}\ndepends: [factor.txt]"
PYTHON = "import other\ndef scaled(x):\n    return x * other.FACTOR\n"


def case_in(folder):
    (folder / "other.py").write_text("FACTOR = 2.0\n", encoding="utf-8")
    (folder / "factor.txt").write_text("2", encoding="utf-8")
    (folder / "unused.py").write_text("", encoding="utf-8")
    return load_case(folder, CASE, PYTHON)


def test_what_a_case_needs_lies_below_another_folder_as_it_lies_here(tmp_path):
    folder, root = tmp_path / "here", tmp_path / "there"
    folder.mkdir()
    case = case_in(folder)
    files = files_of(case, needs(case))
    lay_out(root, files.digests, lambda digest: files.places[digest].read_bytes())
    assert moved(case, root).file == below(root, case.file)
    laid = {file.name for file in below(root, folder).iterdir()}
    assert laid == {case.file.name, "beside.py", "other.py", "factor.txt"}
    assert (below(root, folder) / "other.py").read_text(encoding="utf-8") == "FACTOR = 2.0\n"


def test_a_folder_of_cases_behind_a_link_keeps_its_name(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    case = case_in(tmp_path / "link")
    assert {path.rpartition("/")[0] for path in files_of(case, needs(case)).digests} == {str(tmp_path / "link")}


def test_of_a_folder_that_a_case_names_all_files_travel(tmp_path):
    case = case_in(tmp_path)
    (tmp_path / "data" / "deeper").mkdir(parents=True)
    (tmp_path / "data" / "deeper" / "a.bin").write_bytes(b"1")
    files = files_of(case, Needs((tmp_path / "data", tmp_path / "gone.py"), {}))
    assert set(files.digests) == {str(case.file), str(tmp_path / "data" / "deeper" / "a.bin")}


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    def full(digest):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        lay_out(tmp_path, {"/some/file": "0" * 64}, full)
    assert list((tmp_path / "some").iterdir()) == []


def test_folders_are_taken_out_of_all_texts():
    told = retold({"a": ["/below/x/y.py:3", 3], "b": {"/below/k": "in /below/z"}}, [("/below", "")])
    assert told == {"a": ["/x/y.py:3", 3], "b": {"/k": "in /z"}}


def test_what_asks_a_worker_travels_as_its_source():
    """It is made again by what any Python has, so that one without this package can say that it lacks it."""
    function, (text,) = Admission('{"run": "r"}').__reduce__()
    again = function(text)
    assert type(again) is not Admission and again.wanted == '{"run": "r"}'
    assert "conformance" not in type(again).__module__


def test_a_worker_is_refused_for_each_thing_that_is_not_as_here():
    versions = {"torch": "2", "onnx": "1"}
    here = {"python": "3.11", "code": code(), "versions": versions, "needs": ["gpu"], "packages": {}}
    fits = {**here, "versions": {**versions, "tensorrt": "10"}, "words": ["gpu"]}
    other = {"python": "3.12", "code": "d", "versions": {"torch": "3"}, "words": []}
    assert refusals(here, fits) == []
    found = refusals(here, other)
    assert found[0] == "another version of onnx-export-conformance"
    told = ["Python 3.12 (here 3.11)", "torch 3 (here 2)", "onnx is not installed (here 1)", "it has no gpu"]
    assert found[-4:] == told
