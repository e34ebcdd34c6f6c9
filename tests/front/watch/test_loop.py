"""Which cells run after which change, what is said where there is nothing to run, and what ``-k`` selects."""

import py_compile
import shutil
import time
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from conformance.case.plan.catalogue import plan
from conformance.case.plan.keyword_selection import Words
from conformance.front import cli
from conformance.process.errors import UserError
from tests.front.watch.support import CASES, LIMIT, MODULES, OWN, PLAIN, StubRunner, fail, project, watch
from tests.kit.cases import case_of, load_case

pytestmark = pytest.mark.smoke


@pytest.fixture
def cases(tmp_path):
    return project(tmp_path)


@pytest.fixture
def watched(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return partial(watch, capsys)


def test_all_cells_run_once_and_then_those_whose_files_change(cases, watched):
    done = watched(
        lambda: (cases / "helper.py").write_text("AMOUNT = 2\n"),
        lambda: (cases / "cases.yaml").write_text(CASES.replace("2 * torch", "3 * torch")),
    )
    assert done.ran == [PLAIN + OWN, OWN, PLAIN]
    first, second, third, end = done.said
    assert "4 cells" in first and f"passed  {PLAIN[0]}" in first and "watching 3 files; Ctrl-C ends" in first
    assert "cases/helper.py changed: 2 of 4 cells to run" in second
    assert "cases/cases.yaml changed: 2 of 4 cells to run" in third
    assert end.splitlines()[-1].startswith("4 cells: 4 passed")
    assert done.code == 0


def test_a_process_that_has_loaded_the_cases_python_runs_no_cell_after_a_change(cases, watched):
    runner = StubRunner()
    watched(lambda: (cases / "helper.py").write_text("AMOUNT = 2\n"), runner=runner)
    assert runner.renewed == 2  # after each round, so that a process waits for the next


def test_what_failed_runs_first_and_is_told_in_full(cases, watched):
    runner = StubRunner({OWN[1]: fail})
    done = watched(
        lambda: (cases / "cases.yaml").write_text(CASES.replace("1..4", "1..5")),
        lambda: (cases / "cases.yaml").write_text(CASES.replace("1..4", "1..6")),
        runner=runner,
    )
    order = [OWN[1], *PLAIN, OWN[0]]
    assert done.ran == [PLAIN + OWN, order, order]
    assert "  FAILED  accuracy[own-torchscript-op17-onnxruntime-fp32]" in done.said[1]
    assert "      stage compare" in done.said[1]
    assert "      reproduce: pytest -k accuracy[own-torchscript-op17-onnxruntime-fp32]" in done.said[1]
    assert done.code == 1 and f"failing: {OWN[1]}" in done.said[-1]


def test_a_failure_that_does_not_run_again_is_not_forgotten(cases, watched):
    runner = StubRunner({OWN[1]: fail})
    done = watched(lambda: (cases / "cases.yaml").write_text(CASES.replace("2 * torch", "3 * torch")), runner=runner)
    assert done.ran[1] == PLAIN and f"failing: {OWN[1]}" in done.said[1]


def test_python_that_is_half_written_is_said_with_its_line_and_runs_nothing(cases, watched):
    half = MODULES.replace("def forward(self, x):", "def forward(self,")
    done = watched(
        lambda: (cases / "modules.py").write_text(half),
        lambda: (cases / "modules.py").write_text(MODULES),
        lambda: (cases / "modules.py").write_text(MODULES + "WRITTEN = True\n"),
    )
    assert done.ran == [PLAIN + OWN, [], [], OWN]
    assert "cases/modules.py:7: SyntaxError: '(' was never closed" in done.said[1]
    assert "2 cells wait until that can be read" in done.said[1]
    assert "the verdicts stand, 4 cells: 4 passed" in done.said[2]


def test_a_verdict_on_a_file_that_has_changed_since_counts_no_more(cases, watched):
    half = MODULES.replace("def forward(self, x):", "def forward(self,")
    done = watched(lambda: (cases / "modules.py").write_text(half), runner=StubRunner({OWN[1]: fail}))
    assert "2 cells without a verdict on the files as they are" in done.said[-1]
    assert done.code == 0 and "failing" not in done.said[-1]


def test_the_bytecode_of_an_edited_file_goes(cases, watched):
    """Python takes bytecode for that of an edit within the same second that has as many bytes."""
    compiled = Path(py_compile.compile(str(cases / "helper.py")))
    watched(lambda: (cases / "helper.py").write_text("AMOUNT = 2\n"))
    assert not compiled.exists()


@pytest.mark.parametrize("text, said", [
    (CASES[: CASES.index("torchscript: [17")] + "torch", "cases/cases.yaml:5:"),
    ("", "cases/cases.yaml:1:1: "),
])  # fmt: skip
def test_a_case_file_that_is_half_written_is_said_with_its_line_and_watching_goes_on(cases, watched, text, said):
    done = watched(
        lambda: (cases / "cases.yaml").write_text(text),
        lambda: (cases / "cases.yaml").write_text(CASES),
        lambda: (cases / "cases.yaml").write_text(CASES.replace("torch.sin", "torch.tan")),
    )
    assert done.ran[2:] == [[], PLAIN] and "the verdicts stand, 4 cells: 4 passed" in done.said[2]
    assert said in done.said[1]


def test_a_file_that_is_renamed_takes_its_cells_along(cases, watched):
    done = watched(lambda: (cases / "cases.yaml").rename(cases / "others.yaml"))
    assert "cases/others.yaml new; cases/cases.yaml gone" in done.said[1]
    assert done.ran[1] == []  # what they say, and all that they depend on, is as it was
    assert "the verdicts stand, 4 cells" in done.said[1]


def test_a_python_file_that_is_gone_makes_its_cells_run(cases, watched):
    done = watched(lambda: (cases / "helper.py").unlink(), lambda: (cases / "helper.py").write_text("AMOUNT = 1\n"))
    assert done.ran == [PLAIN + OWN, OWN, OWN] and "cases/helper.py gone: 2 of 4 cells to run" in done.said[1]
    assert "cases/helper.py new: 2 of 4 cells to run" in done.said[2]


def test_new_case_files_and_folders_are_found_and_cells_that_go_are_told(cases, watched):
    def add() -> None:
        (cases / "more").mkdir()
        (cases / "more/new.yaml").write_text(CASES.replace("plain:", "other:").replace("own:", "another:"))
        (cases / "more/modules.py").write_text("import torch\nclass Net(torch.nn.Module):\n    pass\n")

    done = watched(add, lambda: shutil.rmtree(cases / "more"))
    assert sorted(name.partition("[")[2].partition("-")[0] for name in done.ran[1]) == ["another"] * 2 + ["other"] * 2
    assert "4 cells no longer there" in done.said[2]
    assert done.said[-1].splitlines()[-1].startswith("4 cells: 4 passed")


def test_where_nothing_is_selected_it_says_so_and_waits(cases, watched):
    done = watched(lambda: (cases / "cases.yaml").write_text(CASES.replace("plain:", "sine:")), words="sine")
    assert "0 of 4 cells" in done.said[0] and "-k 'sine' in cases: no cell is selected so far" in done.said[0]
    assert done.ran == [[], [name.replace("plain", "sine") for name in PLAIN]]


def test_a_file_that_is_none_of_the_cells_business_is_not_spoken_of(cases, watched):
    done = watched(
        lambda: (cases / "notes.txt").write_text("nothing that a case names"), lambda: (cases / "helper.py").touch()
    )
    assert done.ran == [PLAIN + OWN, [], []] and "notes" not in done.said[1]
    assert "cases/helper.py changed: no cell to run" in done.said[2]


def test_a_running_cell_whose_files_change_gives_way(cases, watched):
    helper = cases / "helper.py"

    def edited(record, on_wait) -> None:
        if helper.read_text() == "AMOUNT = 1\n":
            helper.write_text("AMOUNT = 22\n")
            deadline = time.monotonic() + LIMIT
            while time.monotonic() < deadline:  # after a look that took long, the next one waits for longer
                on_wait({"stage": "run"})
                time.sleep(0.001)
            raise AssertionError("the verdict on the old file was waited for")

    runner = StubRunner({OWN[0]: edited})
    done = watched(runner=runner)
    assert done.ran == [[*PLAIN, OWN[0], *OWN]]
    assert runner.renewed == 2  # before the cell runs again, and at the end of the round


def test_causes_that_cells_share_are_told_once(cases, watched):
    def stop(record, on_wait) -> None:
        record.status, record.stage, record.error, record.reason = "failed", "declare", "NameError", "planted"
        record.fault = "case"

    done = watched(runner=StubRunner({OWN[0]: stop, OWN[1]: stop}))
    assert done.said[0].count("stage declare") == 2  # once in full, once on one line
    assert f"as in {OWN[0]}" in done.said[0]


@pytest.mark.parametrize("arguments, said", [
    (["nowhere"], "nowhere: there is no such case file or folder"),
    (["-k", "asinh and"], "-k 'asinh and' is no expression"),
    (["--store-limit", "much"], "--store-limit: 'much' is not a size"),
])  # fmt: skip
def test_what_the_user_has_to_correct_is_said_in_one_line(tmp_path, cases, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["watch", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


BODY = case_of(
    "torch.sin(x)", "tags: [Quick, nightly]", "export: {torchscript: [9, 17], dynamo: [20]}", dims="batch: 1..4"
)
TEXTS = (
    "op17", "OP17", "not not op17", "export or specials and not dynamo", "(export or specials) and not dynamo",
    "accuracy[planted-torchscript-op17-onnxruntime-fp32]", "test_accuracy and onnxruntime-fp32]",
    "quick and torchscript-op9", "sine", "None or op9", "op1:7", "lambda",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_it_selects_what_pytest_selects(tmp_path, text):
    cells, expression = list(plan(load_case(tmp_path, BODY))), Expression.compile(text)
    assert len(cells) >= 12

    def wanted(cell):
        names = [name.lower() for name in (f"test_{cell.id}", *cell.case.says.tags)]
        return expression.evaluate(lambda word, /, **more: any(word.lower() in name for name in names))

    assert [cell.id for cell in cells if Words(text).keeps(cell)] == [cell.id for cell in cells if wanted(cell)]
    assert all(map(Words("  ").keeps, cells))


@pytest.mark.parametrize("text", ["a and", "a b", "(a", "()", "a()", "a & b", "a == 'b'", "a\n;b", "(" * 500 + "a"])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(UserError, match="-k"):
        Words(text)
