"""Plants failures that cases declare: as declared, otherwise, hardly, not at all, and at some draws only."""

import pytest

from conformance.process.errors import CaseFileError
from tests.kit.cases import PASSED, case_of, details, load_case, say, verdict, with_symbolic
from tests.kit.modules import RELU_WITHOUT_NAN

SOUND = case_of("torch.sin(x)")
WRONG = case_of("x / int(x.shape[0])")
UNKNOWN = case_of("torch.asinh(x)")


def fails(**says: str) -> str:
    says.setdefault("because", "it is planted")
    return f"fails: [{{{', '.join(f'{key}: {value}' for key, value in says.items())}}}]"


@pytest.mark.parametrize("body, says", [
    pytest.param(WRONG, {"stage": "compare", "error": "WrongValue"}, id="by its error"),
    pytest.param(WRONG, {"stage": "compare", "when": "{runtime: onnxruntime}"}, id="at this runtime"),
    pytest.param(WRONG, {"stage": "compare", "when": '{opset: "> 10", exporter: torchscript}'}, id="at this opset"),
    pytest.param(UNKNOWN, {"stage": "export", "error": "aten::asinh"}, id="by a part of the text of others"),
])  # fmt: skip
def test_a_failure_that_is_declared_is_expected(bench, body, says):
    record = bench.run(say(body, fails(**says)))
    assert (record.status, record.stage, record.reason) == ("xfailed", says["stage"], "it is planted")


@pytest.mark.parametrize("says", [
    pytest.param({"stage": "export"}, id="another stage"),
    pytest.param({"stage": "compare", "error": "WrongNaN"}, id="another error"),
    pytest.param({"stage": "compare", "when": "{runtime: onnx-reference}"}, id="another cell"),
    pytest.param({"stage": "compare", "when": "{at: {batch: 7}}"}, id="another draw"),
])  # fmt: skip
def test_a_failure_that_is_declared_otherwise_is_a_failure(bench, says):
    record = bench.run(say(WRONG, fails(**says)))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    if "when" not in says:
        assert any("planted.yaml:" in line and says["stage"] in line for line in details(record))


def test_a_declared_failure_that_does_not_happen_is_the_fault_of_the_case(bench):
    record = bench.run(say(SOUND, fails(stage="compare")))
    assert (record.status, record.fault) == ("xpassed", "case") and "planted.yaml:6 declares" in record.reason
    assert verdict(bench.run(SOUND)) == PASSED


def test_an_export_that_is_declared_to_fail_is_expected_in_every_check(bench):
    body = say(UNKNOWN, fails(stage="export", error="UnsupportedOperatorError"))
    assert bench.run(body, check="export").status == "xfailed" and bench.run(body).status == "xfailed"
    assert bench.run(UNKNOWN, check="export").status == "failed"
    sound = say(SOUND, fails(stage="export", error="UnsupportedOperatorError"))
    assert bench.run(sound, check="export").status == "xpassed"


def test_a_declared_failure_that_hardly_fails_is_borderline(bench):
    symbolic = """
    def symbolic(g, x):
        factor = g.op("Constant", value_t=__import__("torch").tensor({factor}))
        return g.op("Mul", g.op("Sin", x), factor)
    """
    body = say(SOUND, with_symbolic('"aten::sin"'), fails(stage="compare"))
    record = bench.run(body, symbolic.format(factor=1 + 1.6e-5))
    assert record.status == "failed" and "borderline" in record.reason
    assert bench.run(body, symbolic.format(factor=1 + 1e-3)).status == "xfailed"
    assert bench.run(body, symbolic.format(factor=1.0)).status == "xpassed"


def off_at(sizes: str) -> str:
    """A case that is wrong at these sizes of the batch."""
    return case_of(f"torch.sin(x) + (1.0 if int(x.shape[0]) {sizes} else 0.0)")


def declared_at(batch: object) -> str:
    return fails(stage="compare", when=f"{{at: {{batch: {batch}}}}}")


def test_a_failure_at_some_sizes_is_expected_there_and_the_rest_is_verified(bench):
    assert bench.run(off_at("== 7"), examples=60).draw["dims"] == {"batch": 7}
    record = bench.run(say(off_at("== 7"), declared_at(7)))
    assert (record.status, record.stage) == ("xfailed", "compare") and record.examples > 20


@pytest.mark.parametrize("low, status", [(5, "xfailed"), (6, "failed")])
def test_a_whole_range_of_sizes_can_be_declared_to_fail(bench, low, status):
    assert bench.run(say(off_at(">= 5"), declared_at(f"{low}..9")), examples=60).status == status


def test_a_failure_of_one_kind_of_values_is_expected_there_and_the_rest_is_verified(bench):
    body = say(case_of("torch.relu(x)"), with_symbolic('"aten::relu"'))
    both = [f"{{stage: compare, when: {{values: {kind}}}, because: planted}}" for kind in ("nan", "mixed")]
    record = bench.run(say(body, f"fails: [{', '.join(both)}]"), RELU_WITHOUT_NAN, check="specials")
    assert record.status == "xfailed" and record.examples > 0
    alone = bench.run(say(body, f"fails: [{both[0]}]"), RELU_WITHOUT_NAN, check="specials")
    assert alone.status == "failed" and alone.draw["regime"] == "mixed"


SQUARE = """
forward: "x + (1 if x.shape[0] == x.shape[1] + {more} else 0)"
inputs: {{x: "float32[k, n]"}}
dims: {{k: {k}, n: {n}}}
specials: false
"""


@pytest.mark.parametrize("k, n, more, at", [
    pytest.param("1..6", "1..9", 0, "{k: n}", id="a dim that is another"),
    pytest.param("1..6", "1..9", 1, "{k: n + 1}", id="a dim that is more than another"),
    pytest.param("11..13", "1..16", 0, "{k: n}", id="where no boundary sizes are equal"),
    pytest.param("1..6", "1..9", 0, "{k: limit}", id="a size that only with says"),
])  # fmt: skip
def test_draws_may_be_named_by_how_their_dims_are_related(bench, k, n, more, at):
    body = SQUARE.format(k=k, n=n, more=more)
    if "limit" in at:
        body = say(body.replace("x.shape[1]", "limit"), "with: {limit: 6}")
    record = bench.run(say(body, fails(stage="compare", error="WrongValue", when=f"{{at: {at}}}")), examples=0)
    assert (record.status, record.stage) == ("xfailed", "compare"), record.reason
    assert verdict(bench.run(body, examples=30)) == ("failed", "compare", "WrongValue", "exporter")


def test_draws_that_are_named_by_a_relation_and_work_are_held_against_the_case(bench):
    body = say(SQUARE.format(k="1..6", n="1..9", more=20), fails(stage="compare", when="{at: {k: n}}"))
    assert verdict(bench.run(body))[1:3] == ("compare", "UnexpectedPass")


def test_a_name_that_is_no_size_is_a_mistake_in_the_case_file(tmp_path):
    body = say(SQUARE.format(k="1..6", n="1..9", more=0), "with: {word: text}")
    with pytest.raises(CaseFileError, match=r"'word' is used as a size, but is 'text'"):
        load_case(tmp_path, say(body, fails(stage="compare", when="{at: {k: word}}")))
