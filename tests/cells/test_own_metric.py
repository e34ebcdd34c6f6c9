"""A metric of the user's own on data of the user's own: what loses too much is red at whoever loses it, what loses
nothing passes, few samples cannot tell, and what nothing can be told by is refused."""

import numpy as np
import pytest

from conformance.case.plan.catalogue import plan
from conformance.compare.paired import loss_of, loss_of_all
from conformance.process.errors import CaseFileError
from conformance.runtimes import outputs_of
from tests.kit import converted
from tests.kit.cases import PASSED, load_case, say, verdict, with_symbolic
from tests.kit.converted import mirrored, pair, quantized
from tests.kit.runtimes import stopping_runtime, wrong_runtime

RANDOM = np.random.default_rng(3)
WEIGHT = RANDOM.standard_normal((4, 6)).astype(np.float32)
X = RANDOM.standard_normal((800, 6)).astype(np.float32)
LABELS = np.where(RANDOM.random(800) < 0.05, RANDOM.integers(0, 4, 800), (X @ WEIGHT.T).argmax(1))
PYTHON = f"""
import numpy as np
import torch

WEIGHT = torch.tensor({WEIGHT.tolist()})

def forward(x):
    return x @ WEIGHT.T

def top1(outputs, batch):
    return outputs[0].argmax(1) == batch["label"]

def overall(outputs, batch):
    return (outputs[0].argmax(1) == batch["label"]).mean()

def blind(outputs, batch):
    return np.full(len(batch["x"]), 0.75)

def undefined(outputs, batch):
    return np.where(batch["x"][:, 0] > 2, np.nan, 1.0)

def percent(outputs, batch):
    return 100.0 * top1(outputs, batch)

def wrong_count(outputs, batch):
    return top1(outputs, batch)[1:]

def text(outputs, batch):
    return "good"

def likelihood(outputs, batch):
    chances = np.exp(outputs[0]) / np.exp(outputs[0]).sum(1, keepdims=True)
    return chances[np.arange(len(chances)), batch["label"]]

def drawn(outputs, batch):
    return np.random.default_rng().random(len(batch["x"]))

def raises(outputs, batch):
    return batch["lable"]

def of_more(outputs, batch, more):
    return top1(outputs, batch)

def spoiling(outputs, batch):
    right = top1(outputs, batch)
    outputs[0][:] = 0
    batch["x"][:] = 0
    batch["label"][:] = 0
    return right

def rounded(file, batches):
    return changed(file, 1 / 64)

def coarse(file, batches):
    return changed(file, 0.5)

def changed(file, step):
    import onnx
    from onnx import numpy_helper
    model = onnx.load(file)
    values = [one.t for node in model.graph.node for one in node.attribute if one.name == "value"]
    for tensor in [*model.graph.initializer, *values]:
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.float32 and value.ndim == 2:
            tensor.CopyFrom(numpy_helper.from_array((np.round(value / step) * step).astype(np.float32), tensor.name))
    return model
"""
BODY = """
forward: beside.forward(x)
inputs: {x: "float32[batch, 6]"}
dims: {batch: 1..16}
export: {torchscript: [17]}
runtimes: onnxruntime
specials: false
"""
METRIC = "metric: {of: beside.top1, data: val.npz, drop: 1}"


def measured(bench, folder, *more, runtime="onnxruntime", precision="fp32", metric=METRIC, body=BODY, **arrays):
    """The record of the cell ``metric``, on the data above or other arrays."""
    case = load_case(folder, say(body, metric, *more), PYTHON)
    np.savez(folder / "val.npz", **(arrays or {"x": X, "label": LABELS}))
    wanted = ("metric", runtime, precision)
    (cell,) = (one for one in plan(case) if (one.check, one.runtime, one.precision) == wanted)
    return bench.run_cell(cell)


def flipping(every, *names):
    """A runtime that is wrong for one sample in so many: the classes stand the other way round there."""

    def alter(inputs, outputs):
        at = np.nonzero((inputs["x"][:, 0] * 1e4).astype(int) % every == 0)[0]
        outputs[0][at] = -outputs[0][at]
        return outputs

    return wrong_runtime(alter, *names)


def test_a_sound_runtime_holds_and_the_record_has_what_was_measured(bench, tmp_path):
    record = measured(bench, tmp_path)
    assert verdict(record) == PASSED and record.examples == 800
    told = record.metric
    assert told["before"] == told["after"] == pytest.approx(0.96, abs=0.02) and told["flipped"] == []
    assert told["interval"][1] == pytest.approx(100 * (1 - 0.025 ** (1 / 800)), abs=0.01)


def test_every_runtime_and_precision_has_a_cell(tmp_path):
    body = BODY.replace("runtimes: onnxruntime", "runtimes: [onnxruntime, onnx-reference]").replace("17", "13, 17")
    case = load_case(tmp_path, say(body, METRIC, "precisions: {fp16: {}}"))
    found = [(cell.opset, cell.runtime, cell.precision) for cell in plan(case) if cell.check == "metric"]
    assert found == [
        (13, "onnxruntime", "fp32"), (13, "onnx-reference", "fp32"), (17, "onnxruntime", "fp32"),
        (17, "onnx-reference", "fp32"), (17, "onnxruntime", "fp16"),
    ]  # fmt: skip


@pytest.mark.parametrize("of", ["top1", "overall"])
def test_a_runtime_that_loses_points_is_red_with_the_samples_that_flipped(bench, tmp_path, of):
    with flipping(20, "onnxruntime", "onnxruntime-unoptimized"):
        record = measured(bench, tmp_path, metric=METRIC.replace("top1", of))
    assert verdict(record) == ("failed", "compare", "MetricDrops", "runtime"), record.reason
    assert f"beside.{of} is 9" in record.reason and "allowed 1" in record.reason
    assert [one["answer"] for one in record.witnesses] and record.metric["interval"][0] > 1
    if of == "top1":
        flipped = record.metric["flipped"]
        assert len(flipped) == 10 and all((one["before"], one["after"]) == (1.0, 0.0) for one in flipped)
        first = flipped[0]["sample"]
        assert int(X[first, 0] * 1e4) % 20 == 0 and f"{first} (1 to 0)" in record.reason


def test_a_wrong_export_is_blamed_where_others_lose_the_same(bench, tmp_path):
    symbolics = with_symbolic("aten::neg", function="beside.neg")
    python = PYTHON + "\ndef neg(g, x):\n    return g.op('Abs', x)\n"
    body = BODY.replace("export: {torchscript: [17]}", symbolics).replace("forward(x)", "forward(x).neg().neg()")
    case = load_case(tmp_path, say(body, METRIC), python)
    np.savez(tmp_path / "val.npz", x=X, label=LABELS)
    (cell,) = (one for one in plan(case) if one.check == "metric")
    assert verdict(bench.run_cell(cell)) == ("failed", "compare", "MetricDrops", "exporter")


@pytest.mark.parametrize("by, found", [
    ("rounded", PASSED), ("coarse", ("failed", "compare", "MetricDrops", "precision")),
])  # fmt: skip
def test_a_conversion_that_loses_points_is_red_beside_one_that_loses_none(bench, tmp_path, by, found):
    more = f"precisions: {{int8-own: {{by: beside.{by}}}}}"
    record = measured(bench, tmp_path, more, precision="int8-own", metric=METRIC.replace("drop: 1", "drop: 2"))
    assert verdict(record) == found, record.reason
    assert record.metric["drop"] > 3 or found == PASSED


@pytest.mark.parametrize("precision, more", [
    ("int8", ""), ("int8-own", "by: beside.rounded, "),
])  # fmt: skip
def test_data_that_the_conversion_has_seen_is_reported_and_changes_no_verdict(bench, tmp_path, precision, more):
    for name, calibrated, shared in (("same", X[:32], 32), ("partly", np.concatenate([X[:12], -X[:20]]), 12),
                                     ("other", -X[:32], 0)):  # fmt: skip
        folder = tmp_path / name
        folder.mkdir()
        np.save(folder / "calibration.npy", calibrated)
        says = f"precisions: {{{precision}: {{{more}calibration: {{data: calibration.npy}}}}}}"
        record = measured(bench, folder, says, precision=precision, metric=METRIC.replace("drop: 1", "drop: 9"))
        assert verdict(record) == PASSED, record.reason
        told = [one["text"] for one in record.warnings if one["name"] == "calibration"]
        assert [text.partition(" samples")[0] for text in told] == [f"{shared} of 800"] * bool(shared)
        assert all("val.npz are in the calibration data too, calibration.npy" in text for text in told)


def test_a_runtime_that_loses_points_of_a_sound_conversion_is_red_itself(bench, tmp_path):
    with flipping(20):
        record = measured(bench, tmp_path, "precisions: {int8-own: {by: beside.rounded}}", precision="int8-own")
    assert verdict(record) == ("failed", "compare", "MetricDrops", "runtime"), record.reason


def test_a_file_that_others_converted_is_scored_beside_its_original(bench, tmp_path):
    x = RANDOM.standard_normal((600, converted.INPUT)).astype(np.float32)
    (right,) = outputs_of(converted.original(), "onnxruntime", [], {"x": x})
    python = "def top1(outputs, batch):\n    return outputs[0].argmax(1) == batch['label']\n"
    for name, spoil, status in (("sound", None, "passed"), ("spoilt", mirrored, "failed")):
        folder = tmp_path / name
        folder.mkdir()
        pair(folder, quantized(spoil) if spoil else quantized())
        np.savez(folder / "val.npz", x=x, label=right.argmax(1))
        says = say("onnx: net.onnx", "runtimes: onnxruntime", "specials: false", METRIC.replace("drop: 1", "drop: 5"))
        case = load_case(folder, say(says, "precisions: {int8-others: {file: net_small.onnx}}"), python)
        (cell,) = (one for one in plan(case) if one.check == "metric" and one.converted)
        record = bench.run_cell(cell)
        assert (record.status, record.fault) == (status, "precision" if spoil else None), record.reason


def test_few_samples_cannot_tell_and_the_text_says_how_many_would(bench, tmp_path):
    record = measured(bench, tmp_path, x=X[:40], label=LABELS[:40])
    assert (record.status, record.stage, record.undecided) == ("skipped", "compare", True)
    assert "40 samples cannot tell, about 370 would" in record.reason  # log(0.025) / log(0.99)
    with flipping(20, "onnxruntime"):
        record = measured(bench, tmp_path / "other", x=X[:40], label=LABELS[:40])
    assert record.status == "skipped" and "samples changed" in record.reason


@pytest.mark.parametrize("metric, label", [
    ("blind", LABELS), ("top1", np.roll(LABELS, 1)), ("overall", np.roll(LABELS, 1)),
])  # fmt: skip
def test_a_metric_that_nothing_could_fail_and_labels_that_are_shifted_are_vacuous(bench, tmp_path, metric, label):
    record = measured(bench, tmp_path, metric=METRIC.replace("top1", metric), x=X, label=label)
    assert verdict(record) == ("failed", "compare", "Vacuous", "case"), record.reason
    assert "does not drop by more than 1 points for zeros and shuffled rows" in record.reason


@pytest.mark.parametrize("metric, error, said", [
    ("undefined", "BadMetric", "returns nan for sample"), ("percent", "BadMetric", "a score is a number from 0 to 1"),
    ("wrong_count", "BadMetric", "beside.wrong_count returns 799 scores, of shape (799,), for 800 samples"),
    ("text", "BadMetric", "beside.text returns str"), ("drawn", "NotDeterministic", "other scores for the same"),
    ("raises", "KeyError", "KeyError: 'lable' (beside.py:"), ("of_more", "TypeError", "cannot be called"),
    ("missing", "MissingName", "has no 'missing'"),
])  # fmt: skip
def test_a_metric_that_cannot_be_used_is_told_with_its_line(bench, tmp_path, metric, error, said):
    record = measured(bench, tmp_path, metric=METRIC.replace("top1", metric))
    assert verdict(record) == ("failed", "declare", error, "case")
    assert said in record.reason and record.source["line"] == 1
    assert error != "KeyError" or record.place["line"] > 1


def test_outputs_that_a_metric_cannot_score_are_no_fault_of_the_metric(bench, tmp_path):
    with wrong_runtime(lambda inputs, outputs: [outputs[0] * np.nan], "onnxruntime"):
        record = measured(bench, tmp_path, metric=METRIC.replace("top1", "likelihood"))
    assert verdict(record) == ("failed", "compare", "BadMetric", None), record.reason
    assert "scoring the outputs: beside.likelihood returns nan for sample 0" in record.reason
    assert verdict(measured(bench, tmp_path / "sound", metric=METRIC.replace("top1", "likelihood"))) == PASSED


def test_a_runtime_that_stops_or_gives_other_shapes_is_left_to_the_check_accuracy(bench, tmp_path):
    with stopping_runtime(RuntimeError("planted"), "onnxruntime"):
        record = measured(bench, tmp_path)
    assert verdict(record) == ("failed", "run", "RuntimeError", None)
    with wrong_runtime(lambda inputs, outputs: [outputs[0][:, :3]], "onnxruntime"):
        record = measured(bench, tmp_path / "shapes")
    assert verdict(record) == ("failed", "compare", "WrongShape", None)


def test_a_metric_that_changes_what_it_is_given_spoils_nothing(bench, tmp_path):
    assert verdict(measured(bench, tmp_path, metric=METRIC.replace("top1", "spoiling"))) == PASSED


@pytest.mark.parametrize("arrays, said", [
    ({"label": LABELS}, "val.npz: has no array x; it has label"),
    ({"x": X.astype(np.float64), "label": LABELS}, "x is float64, declared is float32[batch, 6]"),
    ({"x": X[:, :5], "label": LABELS}, "x has shape (16, 5), declared is float32[batch, 6]"),
    ({"x": X, "label": LABELS[:7]}, "label has shape (7,), not 800 samples"),
    ({"x": X[:0], "label": LABELS[:0]}, "samples lie along the first axis"),
])  # fmt: skip
def test_data_that_does_not_fit_the_case_is_refused(bench, tmp_path, arrays, said):
    record = measured(bench, tmp_path, **arrays)
    assert verdict(record) == ("failed", "declare", "BadData", "case") and said in record.reason


def test_data_that_is_not_there_or_damaged_is_refused(bench, tmp_path):
    for name, content in (("a", None), ("b", b"no zip")):
        case = load_case(tmp_path / name, say(BODY, METRIC), PYTHON)
        if content:
            (tmp_path / name / "val.npz").write_bytes(content)
        (cell,) = (one for one in plan(case) if one.check == "metric")
        record = bench.run_cell(cell)
        assert verdict(record) == ("failed", "declare", "BadData", "case") and "val.npz" in record.reason


@pytest.mark.parametrize("metric, said", [
    ("{of: top1, data: val.npz, drop: 1}", "is not file.name"), ("{of: beside.top1, data: val.npz, drop: 0}", "drop"),
    ("{of: beside.top1, data: val.npz}", "'drop' is missing"),
    ("{of: beside.top1, data: /val.npz, drop: 1}", "beside the case"),
])  # fmt: skip
def test_what_a_case_cannot_say_of_a_metric_is_refused_at_its_line(tmp_path, metric, said):
    with pytest.raises(CaseFileError, match=said):
        load_case(tmp_path, say(BODY, f"metric: {metric}"), PYTHON)


def test_a_fixed_batch_is_filled_up(bench, tmp_path):
    body = BODY.replace('"float32[batch, 6]"', '"float32[3, 6]"').replace("dims: {batch: 1..16}", "dims: {}")
    assert verdict(measured(bench, tmp_path, body=body)) == PASSED


def test_intervals_hold_the_true_loss_and_grow_narrow_with_samples():
    rng, missed, widths = np.random.default_rng(5), 0, []
    for count in (100, 1000):
        for _ in range(150):
            drawn = rng.random(count)
            loss = loss_of((drawn < 0.03).astype(float), ((drawn >= 0.03) & (drawn < 0.05)).astype(float))
            missed += not loss.low <= 0.01 <= loss.high
        widths.append(loss.high - loss.low)
    assert missed <= 15 and widths[1] < widths[0] / 2  # 5 % of 300


def test_as_many_samples_as_are_said_to_be_needed_tell():
    before, after = np.ones(200), np.r_[np.zeros(2), np.ones(198)]
    few = loss_of(before, after)
    count = few.needed(0.03)
    assert few.verdict(0.03) == "cannot tell" and count > 200
    times = -(-count // 200)
    assert loss_of(np.tile(before, times), np.tile(after, times)).verdict(0.03) == "holds"
    assert few.needed(0.01) is None  # the loss is what is allowed
    whole = loss_of_all(lambda at: (float(before[at].mean()), float(after[at].mean())), 200)
    assert whole.low < 0.01 < whole.high and whole.verdict(0.03) == "cannot tell"
