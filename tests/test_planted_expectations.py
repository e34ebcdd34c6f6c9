"""Plants what cases declare to fail: as declared, otherwise, hardly, not at all, and at some draws only."""

from __future__ import annotations

import pytest

from conformance.errors import CaseFileError
from tests.support import PASSED, details, load_case, say, verdict, with_symbolic

SOUND = """
forward: torch.sin(x)
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..9}
"""
WRONG = SOUND.replace("torch.sin(x)", "x / int(x.shape[0])")
UNKNOWN = SOUND.replace("torch.sin(x)", "torch.asinh(x)")


def fails(**says: str) -> str:
    says.setdefault("because", "it is planted")
    return f"fails: [{{{', '.join(f'{key}: {value}' for key, value in says.items())}}}]"


@pytest.mark.parametrize("says", [
    pytest.param({"stage": "compare"}, id="by its stage"),
    pytest.param({"stage": "compare", "error": "WrongValue"}, id="by its error"),
    pytest.param({"stage": "compare", "error": "differ by more"}, id="by a part of its text"),
    pytest.param({"stage": "compare", "when": "{runtime: onnxruntime}"}, id="at this runtime"),
    pytest.param({"stage": "compare", "when": '{opset: "> 10", exporter: torchscript}'}, id="at this opset"),
])  # fmt: skip
def test_a_failure_that_is_declared_is_expected(bench, says):
    record = bench.run(say(WRONG, fails(**says)))
    assert record.status == "xfailed"
    assert record.stage == "compare"
    assert record.reason == "it is planted"


@pytest.mark.parametrize("says", [
    pytest.param({"stage": "export"}, id="another stage"),
    pytest.param({"stage": "compare", "error": "WrongNaN"}, id="another error"),
])  # fmt: skip
def test_a_failure_that_is_declared_otherwise_is_a_failure(bench, says):
    record = bench.run(say(WRONG, fails(**says)))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert any("planted.yaml:" in line and says["stage"] in line for line in details(record))


def test_an_entry_about_other_cells_excuses_nothing(bench):
    record = bench.run(say(WRONG, fails(stage="compare", when="{runtime: onnx-reference}")))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")


def test_a_declared_failure_that_does_not_happen_is_held_against_the_case(bench):
    record = bench.run(say(SOUND, fails(stage="compare")))
    assert record.status == "xpassed"
    assert record.fault == "case"
    assert "planted.yaml:6 declares" in record.reason
    assert verdict(bench.run(SOUND)) == PASSED


def test_an_export_that_is_declared_to_fail_is_expected_in_every_check(bench):
    body = say(UNKNOWN, fails(stage="export", error="UnsupportedOperatorError"))
    assert bench.run(body, check="export").status == "xfailed"
    assert bench.run(body).status == "xfailed"
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
    assert record.status == "failed"
    assert "borderline" in record.reason
    assert bench.run(body, symbolic.format(factor=1 + 1e-3)).status == "xfailed"
    assert bench.run(body, symbolic.format(factor=1.0)).status == "xpassed"


# ---- failures at some draws --------------------------------------------------------------------------------

AT_SEVEN = SOUND.replace("torch.sin(x)", '"torch.sin(x) + (1.0 if int(x.shape[0]) == 7 else 0.0)"')


def test_without_an_entry_the_draws_at_seven_fail(bench):
    assert bench.run(AT_SEVEN, examples=60).draw["dims"] == {"batch": 7}


def test_a_failure_at_some_sizes_is_expected_there_and_the_rest_is_verified(bench):
    record = bench.run(say(AT_SEVEN, fails(stage="compare", when="{at: {batch: 7}}")))
    assert record.status == "xfailed"
    assert record.stage == "compare"
    assert record.examples > 20


def test_a_failure_at_other_sizes_than_declared_is_a_failure(bench):
    record = bench.run(say(AT_SEVEN, fails(stage="compare", when="{at: {batch: 5}}")), examples=60)
    assert record.status == "failed"


def test_a_failure_at_some_sizes_that_does_not_happen_is_held_against_the_case(bench):
    record = bench.run(say(SOUND, fails(stage="compare", when="{at: {batch: 7}}")))
    assert record.status in ("failed", "xpassed")
    assert record.fault == "case"
    assert "batch" in record.reason


def test_the_sizes_outside_of_the_declared_ones_still_have_to_hold(bench):
    body = say(WRONG, fails(stage="compare", when="{at: {batch: 7}}"))
    assert verdict(bench.run(body)) == ("failed", "compare", "WrongValue", "exporter")


def test_a_whole_range_of_sizes_can_be_declared_to_fail(bench):
    body = SOUND.replace("torch.sin(x)", '"torch.sin(x) + (1.0 if int(x.shape[0]) >= 5 else 0.0)"')
    found = {
        low: bench.run(say(body, fails(stage="compare", when=f"{{at: {{batch: {low}..9}}}}")), examples=60).status
        for low in (5, 6)
    }
    assert found == {5: "xfailed", 6: "failed"}


def test_a_failure_of_one_kind_of_values_is_expected_there_and_the_rest_is_verified(bench):
    python = """
    def symbolic(g, x):
        zero = g.op("Constant", value_t=__import__("torch").tensor(0.0))
        return g.op("Where", g.op("Greater", x, zero), x, zero)
    """
    body = say(SOUND.replace("sin", "relu"), with_symbolic('"aten::relu"'))
    both = [f"{{stage: compare, when: {{values: {kind}}}, because: planted}}" for kind in ("nan", "mixed")]
    record = bench.run(say(body, f"fails: [{', '.join(both)}]"), python, check="specials")
    assert record.status == "xfailed"
    assert record.examples > 0
    alone = bench.run(say(body, f"fails: [{both[0]}]"), python, check="specials")
    assert alone.status == "failed"
    assert alone.draw["regime"] == "mixed"


SQUARE = """
forward: "x + (1 if x.shape[0] == x.shape[1] + {more} else 0)"
inputs: {{x: "float32[k, n]"}}
dims: {{k: {k}, n: {n}}}
specials: false
"""


@pytest.mark.parametrize(
    ("k", "n", "more", "at"),
    [
        pytest.param("1..6", "1..9", 0, "{k: n}", id="a dim that is another"),
        pytest.param("1..6", "1..9", 1, "{k: n + 1}", id="a dim that is more than another"),
        pytest.param("1..n", "2..9", 0, "{k: n..2*n}", id="a range"),
        pytest.param("4..5", "1..k", 0, "{k: n}", id="a dim that bounds the other"),
        pytest.param("11..13", "1..16", 0, "{k: n}", id="where no boundary sizes are equal"),
    ],
)
def test_draws_may_be_named_by_how_their_dims_are_related(bench, k, n, more, at):
    body = SQUARE.format(k=k, n=n, more=more)
    record = bench.run(say(body, fails(stage="compare", error="WrongValue", when=f"{{at: {at}}}")), examples=0)
    assert (record.status, record.stage) == ("xfailed", "compare"), record.reason
    assert verdict(bench.run(body, examples=30)) == ("failed", "compare", "WrongValue", "exporter")


def test_draws_may_be_named_by_a_size_that_only_with_says(bench):
    body = say(SQUARE.format(k="1..6", n="1..9", more=0).replace("x.shape[1]", "limit"), "with: {limit: 6}")
    record = bench.run(say(body, fails(stage="compare", when="{at: {k: limit}}")))
    assert (record.status, record.stage) == ("xfailed", "compare"), record.reason


def test_draws_that_are_named_by_a_relation_and_work_are_held_against_the_case(bench):
    body = say(SQUARE.format(k="1..6", n="1..9", more=20), fails(stage="compare", when="{at: {k: n}}"))
    assert verdict(bench.run(body))[1:3] == ("compare", "UnexpectedPass")


def test_a_name_that_is_no_size_is_a_mistake_in_the_case_file(tmp_path):
    body = say(SQUARE.format(k="1..6", n="1..9", more=0), "with: {word: text}")
    with pytest.raises(CaseFileError, match=r"'word' is used as a size, but is 'text'"):
        load_case(tmp_path, say(body, fails(stage="compare", when="{at: {k: word}}")))
