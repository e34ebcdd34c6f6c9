"""Case files: places and suggestions of mistakes, defaults, vary, and what YAML may not do."""

import textwrap

import pytest

from conformance.case.files.case_file import case_files, load
from conformance.case.plan.catalogue import Selection, read_suite
from tests.kit.cases import problems_of

pytestmark = pytest.mark.smoke

BODY = """
one:
  about: text
  forward: torch.sin(x)
  inputs: {x: "float32[n]"}
  dims: {n: 1..4}
"""


def loaded(folder, text):
    file = folder / "cases.yaml"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return load(file)


def only(folder, more):
    """Line, column and message of the only problem of a case with ``more`` appended."""
    (problem,) = problems_of(folder, BODY.strip("\n") + textwrap.indent(textwrap.dedent(more), "  "))
    return problem.line, problem.column, problem.message


@pytest.mark.parametrize("more, line, column, message", [
    ("\ntag: R1\n", 6, 3, "unknown key 'tag'; did you mean 'tags'?"),
    ("\ntolerance: {fp32: {outputs: {y: {because: x}}}}\n", 6, 36, "'because'; it belongs further out, to tolerance"),
    ("\nexamples: {dims: {n: 1..2}}\n", 6, 14, "unknown key 'dims'; it belongs further out, to the case"),
    ("\nexport: {dynamo: {opsets: [17], statc: n}}\n", 6, 35, "did you mean 'static'?"),
    ("\nexport:\n  torchscript:\n    opsets: [17, 99]\n", 8, 20, "less than or equal to 40"),
    ("\nwhere: [n <= 3, k < n]\n", 6, 19, "there is no dim 'k'"),
    ("\ntrace: {m: 3}\n", 6, 3, "there is no dim 'm'"), ("\nfails:\n  - {stage: rnu, because: x}\n", 7, 8, "stage"),
    ("\nfails:\n  - {stage: run, because: x, when: {at: {m: 3}}}\n", 7, 38, "there is no dim 'm'"),
    ("\nfails: {stage: run}\n", 6, 3, "fails has to be a list, not a mapping"),
    ("\nspecials: maybe\n", 6, 3, "say true, false or a list of inputs, not 'maybe'"),
    ("\nexport: {dynamo: {opsets: [18], simplify: onnxslm}}\n", 6, 35,
     "simplify has to be true, false, 'onnxsim' or 'onnxslim', not 'onnxslm'"),
    ("\nseed: x\n", 6, 3, "seed has to be an integer, not 'x'"),
    ("\nmodule: a.B\n", 1, 1, "one of them"), ("\ntolerance: {fp32: {rtol: 0.1}}\n", 6, 15, "say because"),
])  # fmt: skip
def test_a_mistake_is_reported_at_its_place(tmp_path, more, line, column, message):
    found = only(tmp_path, more)
    assert message in found[2] and found[0] == line
    assert found[1] == column or "fails" in more or "export:\n" in more or "where" in more


@pytest.mark.parametrize("outputs, message", [
    ("[v, {name: i, indices_of: vv}]", "no input or output 'vv'; did you mean 'v'?"),
    ("[v, x]", "'x' is the name of an input"),
    ("[v, {name: i, indices_of: i}]", "'i' would hold indices of itself"),
    ("[v, {name: i, axis: 0}]", "axis says along which axis indices count; indices_of says of what"),
    ("[v, {name: i, indices_of: x, axis: [0, -1]}]", "lie side by side, each once"),
    ("[{name: a, indices_of: x}, {name: b, indices_of: a}]", "'a' holds indices itself"),
    ("[x, {name: i, indices_of: x}]", "'x' is the name of an input"),
    ("[{name: b, rows: {match: iou, with: scoers}}, scores]", "no output 'scoers'; did you mean 'scores'?"),
    ("[{name: b, rows: {match: iou, with: [l, l]}}, l]", "'l' has rows of 'b' already"),
    ("[{name: b, rows: {match: in order, with: s}}, s]", "with and at_least are about rows of boxes"),
    ("[{name: b, rows: {match: iou, at_least: 0.2}}, s]", "greater than or equal to 0.5"),
    ("[{name: b, rows: backwards}, s]", "'in any order'"),
    ("[{name: b, rows: {match: iou, with: s}}, {name: s, rows: in any order}]", "says itself how its rows"),
])  # fmt: skip
def test_a_mistake_in_outputs_is_reported_at_their_line(tmp_path, outputs, message):
    line, _, said = only(tmp_path, f"\noutputs: {outputs}\n")
    assert line == 6 and message in said


def test_all_mistakes_of_a_file_are_told_at_once_in_its_order(tmp_path):
    text = BODY.replace("float32", "flaot32") + "  tag: x\n" + BODY.replace("one", "two").replace("1..4", "4..1")
    found = problems_of(tmp_path, text)
    assert [problem.line for problem in found] == sorted(problem.line for problem in found) and len(found) == 3


def test_defaults_are_merged_and_null_takes_one_away(tmp_path):
    first, second = loaded(
        tmp_path,
        """
        defaults:
          about: from the defaults
          forward: torch.sin(x)
          inputs: {x: "float32[3]"}
          export: {torchscript: [17], dynamo: [20]}
        first: {export: {torchscript: [13]}}
        second: {about: own, export: {dynamo: null}}
        """,
    )
    assert first.says.about == "from the defaults" and first.says.export.torchscript.opsets == [13]
    assert first.says.export.dynamo.opsets == [20]
    assert second.says.about == "own" and second.says.export.dynamo is None


def test_every_combination_of_vary_is_a_case_named_after_its_values(tmp_path):
    cases = loaded(tmp_path, BODY + '  vary: {stride: [1, 2], kind: {wide: [3, 3], none: null}, text: ["a b"]}\n')
    assert [case.name for case in cases] == [
        "one-stride1-kind_wide-text_0", "one-stride1-kind_none-text_0",
        "one-stride2-kind_wide-text_0", "one-stride2-kind_none-text_0",
    ]  # fmt: skip
    assert cases[0].arguments == {"stride": 1, "kind": [3, 3], "text": "a b"}
    assert cases[3].arguments == {"stride": 2, "kind": None, "text": "a b"}


@pytest.mark.parametrize("text, line, message", [
    (BODY + "  vary: {k: [1, 1]}\n", 2, "both called 'one-k1'"),
    (BODY.replace("float32", "int64"), 5, "it may be an index"),
    (BODY.replace("{n: 1..4}", '{n: 1..4, "1\\n..8": 1..4}'), 6, "'1 ..8' is not a name"),
    ("defaults:\n  mode: trian" + BODY, 2, "mode"), (b"a: 1\nb: \xff\n", 2, "UTF-8"),
])  # fmt: skip
def test_what_a_case_may_not_say_is_refused_in_one_line(tmp_path, text, line, message):
    (problem,) = problems_of(tmp_path, text)
    assert problem.line == line and message in problem.message and "\n" not in problem.message


@pytest.mark.parametrize("text, message", [
    ("one: !!map {about: x}\n", "tag"), ("one:\n  about: !x y\n", "tags"), ("one: &a\n  about: x\n", "anchors"),
    ("one: {about: &a x, tags: *a}\n", "anchors"), ("a: &a {about: x}\nb:\n  <<: *a\n", "a"),
])  # fmt: skip
def test_tags_anchors_and_merges_are_refused(tmp_path, text, message):
    found = problems_of(tmp_path, text)
    assert any(message in problem.message for problem in found)


def test_yaml_is_read_as_1_2(tmp_path):
    (case,) = loaded(tmp_path, BODY + "  with: {a: 1e-5, b: on, c: 0o17, d: yes}\n")
    assert case.arguments == {"a": 1e-5, "b": "on", "c": 15, "d": "yes"}


def test_files_are_found_once_in_order_by_whatever_case_their_names_have_and_behind_links(tmp_path):
    cases, elsewhere = tmp_path / "cases", tmp_path / "elsewhere"
    for file in (cases / "one.YAML", cases / "a/two.Yml", cases / "no.txt", elsewhere / "deep" / "three.yaml"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (cases / "linked").symlink_to(elsewhere, target_is_directory=True)
    (elsewhere / "deep" / "back").symlink_to(cases, target_is_directory=True)
    (tmp_path / "link").symlink_to(cases, target_is_directory=True)
    for folder in (cases, tmp_path / "link"):
        found = [file.name for file in case_files([folder, folder / "one.YAML"])]
        assert found == ["two.Yml", "three.yaml", "one.YAML"]
    with pytest.raises(FileNotFoundError, match="there is no such"):
        case_files([tmp_path / "nowhere"])


def test_a_folder_without_case_files_is_an_error_that_says_what_is_there(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one.json").touch()
    _, files = read_suite([tmp_path], Selection())
    (error,) = files.values()
    assert "no case file (.yaml, .yml) in this folder and the folder below it: 1 file of other names" in str(error)
