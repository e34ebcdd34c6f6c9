"""The pytest front end, in whole runs as a user starts them. A start costs seconds, so tests share runs."""

import shlex
from pathlib import Path
from typing import get_args

import pytest

from conformance.results.records.words import Check
from tests.kit.cases import say, write_case
from tests.kit.runs import AS_RUN, Outcome, run_pytest, run_suite
from tests.kit.unrun import UNRUN
from tests.results.test_record import FIELDS

HEAD = """
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..9}
"""
EXPORT = "export: {torchscript: [17]}\nruntimes: onnxruntime"
CASES = {
    "sound": "tags: R9\nforward: torch.sin(x)\nexport: {torchscript: [13, 17], dynamo: [20]}",
    "wrong": "forward: x / int(x.shape[0])\nexport: {torchscript: [17]}\nspecials: false",
    "declared": f"""
forward: torch.asinh(x)
{EXPORT}
fails: [{{stage: export, error: UnsupportedOperatorError, because: there is no symbolic}}]
""",
    "absent": f"forward: torch.sin(x)\n{EXPORT}\nneeds: there_is_no_such_package",
    "crashes": f"module: deadly.Crashes\n{EXPORT}\nspecials: false",
    "exits": f"module: deadly.Exits\n{EXPORT}\nspecials: false",
    "hangs": f"module: deadly.Hangs\n{EXPORT}\nspecials: false",
    "lingers": """
module: deadly.Lingers
inputs: {x: {type: "float32[batch, 3]", values: {uniform: {low: 0.5, high: 3}}}}
dims: {batch: 1..9}
export: {torchscript: {opsets: [17], symbolics: {"aten::sin": deadly.cos}}}
runtimes: onnxruntime
specials: false
""",
}
WHOLE = ("sound", "wrong", "declared", "absent", "crashes", "exits")
DEADLY = """
import os, signal, time
import torch
def cos(g, x):
    return g.op("Cos", x)
class Lingers(torch.nn.Module):
    def forward(self, x):
        if bool((x == 1).all()):  # as simple as only a search tries it
            time.sleep(1000)
        return torch.sin(x)
class Crashes(torch.nn.Module):
    def act(self):
        os.kill(os.getpid(), signal.SIGSEGV)
    def forward(self, x):
        if x.shape[0] == 9:
            self.act()
        return torch.sin(x)
class Hangs(Crashes):
    def act(self):
        time.sleep(1000)
class Exits(Crashes):
    def act(self):
        os._exit(3)
"""
WRONG = "accuracy[wrong-torchscript-op17-onnxruntime-fp32]"


def write(folder: Path, *names: str) -> Path:
    cases = folder / "cases"
    for name in names:
        body = CASES[name] if "inputs:" in CASES[name] else say(HEAD, CASES[name])
        write_case(cases, body, name=name)
    (cases / "deadly.py").write_text(DEADLY, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sound cases only, for runs that select."""
    return write(tmp_path_factory.mktemp("sound"), "sound")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run over everything, in a folder where the default --cases finds it."""
    folder = write(tmp_path_factory.mktemp("whole"), *WHOLE)
    (folder / "cases/broken.yaml").write_text("broken:\n  about: x\n  inputs: [\n", encoding="utf-8")
    return run_suite(folder, "--examples", "1", "-v")


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run in which time runs out, apart from the others, whose cells may take as long as a busy host needs."""
    folder = write(tmp_path_factory.mktemp("hanging"), "hangs", "lingers")
    return run_suite(folder, "--examples", "1", "--cell-timeout", "6")


# ---- records -------------------------------------------------------------------------------------------------
def test_ids_are_as_documented_and_have_no_equals_sign(whole):
    assert "::test_accuracy[sound-torchscript-op17-onnxruntime-fp32] PASSED" in whole.text
    assert "::test_export[sound-dynamo-op20] PASSED" in whole.text
    assert "::test_case_file[cases/broken] FAILED" in whole.text and not any("=" in name for name in whole.records)


def test_every_cell_has_one_record_with_every_documented_field(whole):
    assert len(whole.records) == 3 * 5 + 3 + 3 + 3 + 2 * 2
    for record in whole.records.values():
        assert record.keys() >= FIELDS and record["source"]["file"].startswith("cases/") and record["command"]


def test_the_header_names_the_schema_the_start_and_the_environment(whole):
    header = whole.header
    assert header["schema"] == 1 and header["started"].startswith("20")
    assert {"torch", "onnx", "onnxruntime", "numpy"} <= header["environment"]["versions"].keys()
    assert "--examples" in header["environment"]["flags"]
    assert header["environment"].keys() >= {"cpu", "gpu", "python"}


def test_run_json_is_made_of_the_same_lines(whole):
    run = whole.run
    assert {record["id"]: record for record in run["records"]} == whole.records
    assert run["schema"] == 1 and run["seconds"] > 0 and run["environment"] == whole.header["environment"]


def test_statuses_are_pytests_too_and_a_run_with_failures_fails(whole):
    assert whole.code == 1 and "INTERNALERROR" not in whole.text
    found = {}
    for record in whole.records.values():
        found.setdefault(record["case"], set()).add(record["status"])
    statuses = {"sound": {"passed"}, "wrong": {"failed"}, "declared": {"xfailed"}, "absent": {"skipped"}}
    assert statuses.items() <= found.items()
    assert "3 skipped, 3 xfailed" in whole.text


def test_a_passing_record_says_what_was_verified_and_what_computed_it(whole):
    record = whole.records["accuracy[sound-torchscript-op17-onnxruntime-fp32]"]
    assert 10 < record["examples"] < 40, "more without --examples 1"
    assert (record["stage"], record["reason"]) == (None, None) and record["worst"]["ratio"] < 1
    assert record["draw"].keys() >= {"dims", "regime", "seed", "index"}
    assert record["graph"]["nodes"] == {"Sin": 1} and record["graph"]["opset"] == 17
    assert record["arithmetic"]["provider"] == "CPUExecutionProvider" and record["fingerprint"]


def test_the_matrix_and_the_counts_end_the_run(whole):
    end = whole.text.split(" conformance =")[-1]
    assert "✓" in end and f"{len(whole.records)} cells: " in end and "examples verified" in end


# ---- failures --------------------------------------------------------------------------------------------------
def test_a_failure_says_what_where_who_and_how_to_see_it_again_in_this_order(whole):
    text = whole.failure(f"test_{WRONG}")
    parts = [
        "WrongValue", "output 0[", "got ", "wanted ", "times what is allowed", "smallest example: batch=",
        "stage compare", "at fault: the exporter", "cases/wrong.yaml:1", "reproduce: ",
    ]  # fmt: skip
    places = [text.find(part) for part in parts]
    assert -1 not in places and places == sorted(places), text


def test_the_command_of_a_failure_reproduces_it_and_nothing_else(whole):
    record = whole.records[WRONG]
    program, run, *words = shlex.split(record["command"])
    assert (program, run) == ("conformance", "run")
    again = run_pytest(whole.folder, *AS_RUN, *words, PYTEST_ADDOPTS="--report again")
    lines = (whole.folder / "again/records.jsonl").read_text().splitlines()
    assert again.code == 1
    assert len(lines) == 2 and f'"id":"{WRONG}"' in lines[1]
    assert f'"dims":{{"batch":{record["draw"]["dims"]["batch"]}}}' in lines[1]
    assert f'"stage":"{record["stage"]}","error":"{record["error"]}"' in lines[1]


@pytest.mark.parametrize("run, case, signal, error", [
    ("whole", "crashes", "SIGSEGV", "SIGSEGV"), ("whole", "exits", "exit 3", "exit 3"),
    ("hanging", "hangs", "timeout", "Timeout"),
])  # fmt: skip
def test_the_end_of_a_worker_is_the_verdict_of_its_cell_and_the_rest_goes_on(request, run, case, signal, error):
    whole: Outcome = request.getfixturevalue(run)
    record = whole.records[f"accuracy[{case}-torchscript-op17-onnxruntime-fp32]"]
    assert record["status"] == "failed" and record["signal"].startswith(signal) and record["error"] == error
    assert record["stage"] == "declare", "it is the module itself that ends, in PyTorch"
    assert record["fault"] in ("case", "reference") and record["draw"]["dims"] == {"batch": 9}
    assert whole.records[f"export[{case}-torchscript-op17]"]["status"] == "passed"
    assert "batch=9; " in whole.failure(f"test_accuracy[{case}-")


def test_a_failure_is_known_where_explaining_it_takes_too_long(hanging):
    record = hanging.records["accuracy[lingers-torchscript-op17-onnxruntime-fp32]"]
    assert (record["status"], record["stage"], record["error"]) == ("failed", "compare", "WrongValue")
    assert record["draw"]["dims"] and record["signal"] is None and "values differ by more" in record["reason"]
    told = hanging.failure("test_accuracy[lingers-")
    assert "looking for the smallest example and for who is at fault ended before it was done: timeout" in told


# ---- selection -------------------------------------------------------------------------------------------------
def collected(folder: Path, *arguments: str) -> list[str]:
    outcome = run_suite(folder, "--collect-only", "-q", *arguments)
    assert outcome.code == 0, outcome.text
    return [line.split("::test_")[1] for line in outcome.text.splitlines() if "::test_" in line]


def test_options_keep_only_what_they_name(folder):
    found = collected(folder, "--exporter", "torchscript", "--opset", "17,20", "--runtime", "onnxruntime")
    assert set(found) == {
        "case_file[cases/sound]", "export[sound-torchscript-op17]",
        "accuracy[sound-torchscript-op17-onnxruntime-fp32]", "specials[sound-torchscript-op17-onnxruntime-fp32]",
    }  # fmt: skip


def test_words_of_k_select_by_name_tag_and_opset(folder):
    assert len(collected(folder, "-k", "R9 and op13")) == 5
    assert len(collected(folder, "-k", "sound and dynamo and accuracy")) == 2


MISTAKEN = """
sound:
  about: nothing is wrong
  forward: torch.sin(x)
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..9}
  export: {torchscript: [17]}
wrong: {about: x, forward: torch.sin(x), inputs: {x: "float32[3]"}, dimz: {batch: 1..9}}
"""


@pytest.mark.parametrize("words", [
    ("-k", "wrong"), ("-k", "sound and export"), ("-k", "no_such_case"), ("-k", "not case_file"), ("-m", "latency"),
])  # fmt: skip
def test_a_case_with_a_mistake_is_found_by_its_name(tmp_path, words):
    """And by any other words: which cells a file that is refused would have had, nobody knows."""
    told = ["cases/broken.yaml:", "cases/mistaken.yaml:8:"]
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases/mistaken.yaml").write_text(MISTAKEN, encoding="utf-8")
    (tmp_path / "cases/broken.yaml").write_text("unreadable:\n  about: x\n  inputs: [\n", encoding="utf-8")
    outcome = run_suite(tmp_path, *words, *UNRUN)
    assert outcome.code == pytest.ExitCode.TESTS_FAILED
    found = sorted(line for line in outcome.text.splitlines() if line.startswith("cases/"))
    assert len(found) == len(told) and all(map(str.startswith, found, told)), outcome.text


@pytest.mark.parametrize("arguments, suggestion", [
    (["--exporter", "dynmo"], "did you mean 'dynamo'?"),
    (["--runtime", "onnx-runtime"], "did you mean 'onnxruntime'?"),
    (["--opset", "seventeen"], "is not a list of numbers"),
])  # fmt: skip
def test_an_unknown_word_is_a_usage_error_with_a_suggestion(folder, arguments, suggestion):
    outcome = run_suite(folder, *arguments)
    assert outcome.code == pytest.ExitCode.USAGE_ERROR and suggestion in outcome.text
    assert "Traceback" not in outcome.text


def test_no_cell_selected_is_not_a_success(folder):
    assert run_suite(folder, "--opset", "9").code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert run_suite(folder, "-k", "no_such_case").code == pytest.ExitCode.NO_TESTS_COLLECTED


def test_only_skipped_cells_are_not_a_success(tmp_path):
    outcome = run_suite(write(tmp_path, "absent"))
    assert outcome.code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "every cell was skipped: that is not a success" in outcome.text
    assert {record["status"] for record in outcome.records.values()} == {"skipped"}
    assert "the package 'there_is_no_such_package' is not installed" in outcome.run["records"][0]["reason"]


def test_without_a_folder_of_cases_it_says_how_to_name_one(tmp_path):
    outcome = run_suite(tmp_path)
    assert outcome.code == pytest.ExitCode.TESTS_FAILED
    assert "there is no such case file or folder; --cases PATH says where" in outcome.text


# ---- ways to run -------------------------------------------------------------------------------------------------
OF_A_RUN = ("seconds", "command", "source", "depends", "fingerprint")


def without_times(outcome: Outcome) -> dict[str, dict[str, object]]:
    return {id: {name: record[name] for name in record.keys() - OF_A_RUN} for id, record in outcome.records.items()}


@pytest.mark.parametrize("way", [("-n", "1"), pytest.param(("--isolation", "none"), marks=pytest.mark.thorough)])
def test_the_records_are_the_same_from_an_empty_folder_in_another_way_to_run(folder, tmp_path, way):
    chosen = ("--cases", folder / "cases", "--examples", "1", "--exporter", "torchscript", "--opset", "17")
    plain = run_suite(tmp_path / "plain", *chosen)
    other = run_suite(tmp_path / "other", *chosen, *way, own_process=True)
    for outcome in (plain, other):
        assert outcome.code == 0 and len(outcome.records) == len(outcome.run["records"]) == 5, outcome.text
        assert "5 cells: 5 passed" in outcome.text
    assert without_times(plain) == without_times(other)


IMPORTED = """
import sys
def pytest_unconfigure(config):
    print("imported:", sorted({"torch", "onnxruntime", "onnx", "hypothesis"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("more", [
    ("--exporter", "torchscript", "-k", "op17 and export"),
    ("--exporter", "torchscript", "-k", "op17 and export", "-n", "1"),
    ("--collect-only", "-p", "no:hypothesispytest"),
], ids=["a run", "a run with xdist", "without the plugin of hypothesis"])  # fmt: skip
def test_the_process_of_the_tests_imports_neither_torch_nor_a_runtime_nor_hypothesis(folder, more):
    """Hypothesis's plugin would import all of it to sum up that nothing was drawn."""
    outcome = run_suite(folder, "-s", *more, plugin=IMPORTED, own_process=True)
    assert outcome.code == 0 and "imported: []" in outcome.text, outcome.text


OTHER = """
import sys
def test_other():
    heavy = {'torch', 'onnxruntime', 'onnx', 'numpy', 'pydantic', 'conformance.case.files.declaration'}
    assert not heavy & sys.modules.keys()
"""


def test_another_session_of_the_same_environment_sees_nothing_of_the_plugin(tmp_path):
    (tmp_path / "test_other.py").write_text(OTHER)
    outcome = run_pytest(tmp_path, "-q", own_process=True)
    assert outcome.code == 0 and "conformance" not in outcome.text, outcome.text
    assert sorted(one.name for one in tmp_path.iterdir() if one.name[0] not in "._") == ["test_other.py"]


KILLED = """
import os
seen = []
def pytest_runtest_logfinish(nodeid):
    seen.append(nodeid)
    if len(seen) == 4:
        os._exit(9)
"""


def test_a_killed_run_keeps_the_records_it_had(folder):
    """The plugin ends the whole process after the third record."""
    outcome = run_suite(folder, *UNRUN, plugin=KILLED, own_process=True)
    assert outcome.code == 9 and len(outcome.records) == 3
    assert not (folder / "reports/latest/run.json").exists()


def test_the_functions_of_the_suite_stand_in_the_order_in_which_they_run():
    from conformance import test_suite

    order = [name.removeprefix("test_") for name in vars(test_suite) if name.startswith("test_")]
    assert order[:4] == ["case_file", "export", "registration", "fidelity"]
    assert order[4:10] == ["accuracy", "specials", "steps", "recorded", "metric", "preprocess"]
    assert order[10:] == ["engine", "parse", "build", "meaning", "latency"]
    assert {*order} == {"case_file", *get_args(Check)}
