"""The benchmark over ONNX's own tests: what is kept of each, how it is counted, and that it goes on where it was."""

import json

import numpy as np
from onnx import numpy_helper, save

from evidence.onnx_tests.all_tests import Shipped
from evidence.onnx_tests.tally import page, summarize, verdict_on
from evidence.onnx_tests.try_tests import Result, read_results, run_tests
from tests.kit.models import model_of


def shipped(folder, name, text, x, y):
    place = folder / name
    data = place / "test_data_set_0"
    data.mkdir(parents=True)
    save(model_of(text), place / "model.onnx")
    (data / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    (data / "output_0.pb").write_bytes(numpy_helper.from_array(y).SerializeToString())
    return Shipped(name, "Abs", place / "model.onnx")


def test_a_run_goes_on_where_it_was_and_says_what_came_of_each(tmp_path):
    x = np.array([-1, 2], np.float32)
    text = "net (float[2] x) => (float[2] y) { y = Abs (x) }"
    sound, foreign = shipped(tmp_path, "test_a", text, x, np.abs(x)), shipped(tmp_path, "test_b", text, x, -x)
    file = tmp_path / "recorded.jsonl"
    (first,) = run_tests([sound], "recorded", file, tmp_path / "store", 1)
    assert verdict_on(first) == "verified" and first.gives_recorded("onnxruntime") and not first.falsely_accused()
    with file.open("a", encoding="utf-8") as stream:
        stream.write('{"name": "cut of')
    seconds = first.seconds
    again, other = run_tests([sound, foreign], "recorded", file, tmp_path / "store", 1)
    assert again.seconds == seconds, "it was not run again"
    assert verdict_on(other) == "red" and {cell["error"] for cell in other.red()} == {"ForeignData"}
    assert [result.name for result in read_results(file)] == ["test_a", "test_b"]
    assert "1 verified" in "\n".join(summarize([again, other]))


def cell(check, status, fault=None, **more):
    told = {"check": check, "runtime": "onnxruntime", "status": status, "fault": fault, "examples": 1, "reason": "|x"}
    return {**told, "stage": "compare", "error": None, "witnesses": [], "conclusion": None, **more}


def test_a_red_that_blames_a_runtime_which_gives_what_was_recorded_is_a_false_accusation():
    wrong = cell("accuracy", "failed", "runtime")
    told = Result("test_x", "Abs", 17, 1.0, [cell("recorded", "passed"), wrong])
    assert told.falsely_accused() == [wrong]
    assert Result("test_x", "Abs", 17, 1.0, [cell("recorded", "failed", "runtime"), wrong]).falsely_accused() == []
    alone = Result("test_y", "Abs", 17, 1.0, [cell("recorded", "skipped", examples=0)], evaluator="right")
    assert verdict_on(alone) == "evaluator alone"
    lines = [*page({"recorded": [told, alone], "drawn": []})]
    assert any("| x | ONNX Runtime | runtime | yes |" in line for line in lines)
    assert all(line.count("|") == 7 or "x |" not in line for line in lines if line.startswith("| x"))
    assert json.dumps(told.cells)
