"""Calibration inputs by themselves: where they come from, in which order, what is told of them, what is refused."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.case.draw.draw import Maker
from conformance.case.draw.shapes import trace_sizes
from conformance.case.files.precision import Calibration
from conformance.models.precision.calibration import DRAWN, Feeds, gather
from conformance.process.errors import Stopped
from tests.kit.cases import load_case, say
from tests.kit.runs import run_suite

RNG = np.random.default_rng(0)
GOOD = RNG.normal(size=(40, 4)).astype("float32")

ONE = say('inputs: {x: "float32[batch, 4]"}', "dims: {batch: 1..16}")
MIXED = say(
    'inputs: {x: "float32[batch, 4]", i: {type: "int64[batch]", values: {integers: {low: 0, high: 3}}}}',
    "dims: {batch: 1..16}",
)
Function = Callable[[np.random.Generator], Any]


def gathered(folder: Path, inputs: str = ONE, *, function: Function | None = None, **says: Any) -> Feeds:
    """What a case with these inputs calibrates with; ``function`` is what ``data: beside.data`` names."""
    case = load_case(folder, say("forward: x", inputs))
    maker = Maker(case, lambda name: None)  # type: ignore[arg-type, return-value]
    sizes = trace_sizes(case.dims, {})
    return gather(case, Calibration(**says), case.dims, sizes, maker, lambda name: function)


def refused(*arguments: Any, **options: Any) -> str:
    """The reason for which there are no such calibration inputs; always the case's fault, when it is declared."""
    with pytest.raises(Stopped) as caught:
        gathered(*arguments, **options)
    stop = caught.value
    assert (stop.stage, stop.error, stop.fault) == ("declare", "BadCalibration", "case") and "\n" not in stop.reason
    return stop.reason


def saved(folder: Path, **arrays: np.ndarray) -> str:
    """The name of a file with these arrays; a .npy for one that has no name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "data.npy" if set(arrays) == {"array"} else "data.npz"
    (folder / name).write_bytes(packed(**arrays))
    return name


def packed(**arrays: Any) -> bytes:
    """The bytes of such a file."""
    file = io.BytesIO()
    if set(arrays) == {"array"}:
        np.save(file, arrays["array"])
    else:
        np.savez(file, **arrays)
    return file.getvalue()


def joined(feeds: Feeds, name: str = "x") -> np.ndarray:
    return np.concatenate([batch[name] for batch in feeds.batches])


def test_draws_are_the_cases_own_and_their_source_says_so(tmp_path):
    feeds = gathered(tmp_path, MIXED)
    assert feeds.source == DRAWN
    assert feeds.as_dict() == {"source": DRAWN, "samples": 32, "batch": 8, "sha": feeds.sha}
    assert [len(batch["x"]) for batch in feeds.batches] == [8] * 4
    assert {batch["x"].dtype.name for batch in feeds.batches} == {"float32"}
    assert {*joined(feeds, "i")} == {0, 1, 2, 3} and len({batch["x"].tobytes() for batch in feeds.batches}) == 4


@pytest.mark.smoke
@pytest.mark.parametrize("samples, batch, sizes", [
    (8, 8, [8]), (9, 8, [8, 8]), (8, 1, [1] * 8), (32, 5, [5] * 7), (10, 16, [16]),
])  # fmt: skip
def test_draws_come_in_whole_batches_until_there_are_enough(tmp_path, samples, batch, sizes):
    feeds = gathered(tmp_path, samples=samples, batch=batch)
    assert [len(one["x"]) for one in feeds.batches] == sizes and (feeds.samples, feeds.batch) == (sum(sizes), batch)


def test_a_batch_larger_than_the_case_allows_becomes_the_largest(tmp_path):
    assert gathered(tmp_path, batch=99).batch == 16


def test_at_sets_the_other_dims(tmp_path):
    inputs = say('inputs: {x: "float32[batch, n]"}', "dims: {batch: 1..16, n: 2..9}")
    assert {one["x"].shape for one in gathered(tmp_path, inputs, at={"n": 7}).batches} == {(8, 7)}
    assert "at: the case allows no sizes like" in refused(tmp_path, say(inputs, "where: [n < 5]"), at={"n": 7})


def test_a_file_is_cut_into_batches_in_its_order(tmp_path):
    feeds = gathered(tmp_path, data=saved(tmp_path, array=GOOD), samples=20, batch=6)
    assert [len(batch["x"]) for batch in feeds.batches] == [6, 6, 6, 2]
    np.testing.assert_array_equal(joined(feeds), GOOD[:20])
    assert feeds.as_dict() == {"source": "data.npy", "samples": 20, "batch": 6, "sha": feeds.sha}


def test_a_file_with_fewer_samples_than_wished_gives_all_that_it_has(tmp_path):
    assert gathered(tmp_path, data=saved(tmp_path, array=GOOD[:11]), samples=32).samples == 11


def test_arrays_of_one_file_stay_together(tmp_path):
    numbers = np.arange(40, dtype="int64") % 4
    feeds = gathered(tmp_path, MIXED, data=saved(tmp_path, x=GOOD, i=numbers, other=GOOD), batch=3)
    np.testing.assert_array_equal(joined(feeds), GOOD[:32])
    np.testing.assert_array_equal(joined(feeds, "i"), numbers[:32])
    assert {*feeds.batches[0]} == {"x", "i"}


def test_a_generator_decides_on_its_batches_and_is_not_asked_for_more_than_needed(tmp_path):
    asked: list[int] = []

    def data(rng: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
        for size in (3, 4, 5, 6, 7, 8, 9):
            asked.append(size)
            yield {"x": rng.normal(size=(size, 4)).astype("float32")}

    feeds = gathered(tmp_path, function=data, data="beside.data", samples=12, batch=1)
    assert asked == [3, 4, 5]
    assert (feeds.samples, feeds.batch, feeds.source) == (12, 5, "beside.data")


def test_what_a_generator_gave_is_not_changed_by_what_it_does_later(tmp_path):
    def data(rng: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
        buffer = np.zeros((8, 4), "float32")
        for k in range(4):
            buffer[:] = k
            yield {"x": buffer}

    feeds = gathered(tmp_path, function=data, data="beside.data")
    assert [batch["x"][0, 0] for batch in feeds.batches] == [0, 1, 2, 3]


@pytest.mark.parametrize("inputs, batch", [
    (MIXED, 8),
    (say('inputs: {x: "float32[batch, batch]"}', "dims: {batch: 2..4}"), 1),
    (say('inputs: {x: "float32[batch, 4]", y: "float32[n, 4]"}', "dims: {batch: 2..4, n: 2..4}"), 1),
    (say('inputs: {x: "float32[batch, 4]", s: "float32[]"}', "dims: {batch: 2..4}"), 1),
    (say('inputs: {x: "float32[batch, 4]"}', "dims: {batch: 4}"), 1),
    (say('inputs: {x: "float32[2*batch, 4]"}', "dims: {batch: 2..4}"), 1),
])  # fmt: skip
def test_samples_lie_along_the_dim_that_is_the_first_of_all_inputs_and_of_nothing_else(tmp_path, inputs, batch):
    """Without such a dim each draw is one sample."""
    feeds = gathered(tmp_path, inputs, samples=8)
    assert (len(feeds.batches), feeds.batch) == (8 // batch, batch)


def sha_of(folder: Path, array: np.ndarray, **says: Any) -> str:
    return gathered(folder, data=saved(folder, array=array), **says).sha


@pytest.mark.parametrize("change", [
    lambda data: data[::-1], lambda data: data + np.float32(1e-7), lambda data: data[:31],
], ids=["backwards", "almost", "one less"])  # fmt: skip
def test_other_values_or_another_order_have_another_hash(tmp_path, change):
    first = sha_of(tmp_path / "one", GOOD)
    assert first == sha_of(tmp_path / "same", GOOD.copy())
    assert first != sha_of(tmp_path / "other", np.ascontiguousarray(change(GOOD)))


OBJECTS = np.array([{"a": 1}, None], dtype=object)


@pytest.mark.smoke
@pytest.mark.parametrize("data, part", [
    pytest.param(GOOD[:7], "7 samples are too few to calibrate with; at least 8", id="few"),
    pytest.param(GOOD[:, 0], "x has shape (8,), declared is float32[batch, 4]", id="an axis less"),
    pytest.param(GOOD[:, :3], "x has shape (8, 3), declared is float32[batch, 4]", id="narrow"),
    pytest.param(GOOD.astype("float16"), "x is float16, declared is float32", id="float16"),
    pytest.param(np.full((8, 4), 2.5, "float32"), "every value is 2.5; constant data", id="constant"),
    pytest.param(np.where(GOOD[9, 1] == GOOD, np.nan, GOOD), "x: batch 1 has a NaN or an infinity", id="NaN"),
    pytest.param(np.where(GOOD[0, 0] == GOOD, -np.inf, GOOD), "x: batch 0 has a NaN or an infinity", id="infinity"),
    pytest.param(np.float32(3), "samples lie along the first axis", id="0-d"),
    pytest.param(packed(array=GOOD)[:200], "cannot be read", id="cut off"),
    pytest.param(packed(array=OBJECTS), "cannot be read", id="objects"),
])  # fmt: skip
def test_a_file_that_is_no_calibration_data_is_refused(tmp_path, data, part):
    if isinstance(data, bytes):
        (tmp_path / "data.npy").write_bytes(data)
    else:
        saved(tmp_path, array=np.ascontiguousarray(data) if data.ndim else data)
    reason = refused(tmp_path, data="data.npy")
    assert reason.startswith("calibration: ") and "data.npy" in reason and part in reason


TWO = say('inputs: {x: "float32[batch, n]", y: "float32[batch, n]"}', "dims: {batch: 1..4, n: 2..6}")


@pytest.mark.parametrize("inputs, data, part", [
    pytest.param(ONE, packed(y=GOOD), "has no array x; it has y", id="another name"),
    pytest.param(ONE, packed(x=GOOD).replace(GOOD[3].tobytes(), GOOD[4].tobytes()), "data.npz", id="damaged"),
    pytest.param(TWO, packed(x=GOOD, y=GOOD[:9]), "9 and 40 samples", id="lengths"),
    pytest.param(TWO, packed(x=GOOD, y=GOOD[:, :3]), "y has shape (8, 3)", id="a dim of two sizes"),
    pytest.param(TWO, packed(array=GOOD), "the case has the inputs x, y; give a .npz", id="one array for both"),
])  # fmt: skip
def test_arrays_of_several_inputs_have_to_be_there_and_fit_one_another(tmp_path, inputs, data, part):
    name = "data.npy" if data.startswith(b"\x93NUMPY") else "data.npz"
    (tmp_path / name).write_bytes(data)
    reason = refused(tmp_path, inputs, data=name)
    assert name in reason and part in reason


def test_constant_integers_are_no_range_and_are_taken(tmp_path):
    assert gathered(tmp_path, MIXED, data=saved(tmp_path, x=GOOD, i=np.zeros(40, "int64"))).samples == 32


def test_a_drawn_input_that_is_constant_is_refused(tmp_path):
    inputs = 'inputs: {x: {type: "float32[batch, 4]", values: {choice: [2.0]}}}\ndims: {batch: 1..4}'
    assert "drawn from the case: x: every value is 2" in refused(tmp_path, inputs)


TWICE = say('inputs: {x: "float32[batch, 2*n]", y: "float32[batch, n]"}', "dims: {batch: 1..16, n: 2..6}")


@pytest.mark.parametrize("inputs, shapes, part", [
    pytest.param(TWICE, ((9, 8), (9, 4)), None, id="fits"),
    pytest.param(TWICE, ((9, 7), (9, 4)), "x has shape (8, 7), declared is float32[batch, 2*n] with batch=8, n=4",
                 id="an expression"),
    pytest.param(TWICE.replace("n: 2..6", "m: 2..3, n: 2*m").replace("2*n", "m"), ((9, 4), (9, 7)),
                 "y has shape (8, 7), declared is float32[batch, n] with batch=8, n=8", id="a dim made of another"),
])  # fmt: skip
def test_shapes_have_to_fit_one_another(tmp_path, inputs, shapes, part):
    arrays = dict(zip("xy", (RNG.normal(size=shape).astype("float32") for shape in shapes), strict=True))
    says = {"data": saved(tmp_path, **arrays), "samples": 8}
    if part is None:
        assert gathered(tmp_path, inputs, **says).samples == 8
    else:
        assert part in refused(tmp_path, inputs, **says)


@pytest.mark.smoke
@pytest.mark.parametrize("yielded, part", [
    ([], "0 samples are too few"), ([{"x": GOOD[:0]}] * 9, "yields an empty batch"),
    ([GOOD], "has to yield mappings from input names to arrays, not ndarray"),
    ([{"y": GOOD}], "has no array x"), ([{"x": "text"}], "x is <U4"),
    ([{"x": [[1.0], [2.0, 3.0]]}], "beside.data: x"),
    ([{"x": GOOD[:4]}, {"x": GOOD[:4, :2]}], "x has shape (4, 2)"), (None, "has to yield batches"),
])  # fmt: skip
def test_a_generator_that_yields_no_calibration_data_is_refused(tmp_path, yielded, part):
    reason = refused(tmp_path, function=lambda rng: yielded, data="beside.data")
    assert reason.startswith("calibration: beside.data") and part in reason


def test_int8_is_converted_after_fp16_of_another_folder_in_the_same_process(tmp_path):
    """ONNX Runtime's quantizer is looked for on a path that goes with the folder of the first cell that converts."""
    body = 'module: beside.Conv\ninputs: {x: "float32[n, 3, 8, 8]"}\ndims: {n: 1..2}\nexport: {torchscript: [17]}\n'
    python = "import torch\n\ndef Conv():\n    return torch.nn.Conv2d(3, 4, 3).eval()\n"
    for precision in ("fp16", "int8"):
        (tmp_path / "cases" / precision).mkdir(parents=True)
        load_case(tmp_path / "cases" / precision, f"{body}precisions: {{{precision}: {{}}}}\n", python, precision)
    outcome = run_suite(tmp_path, "-k", "fidelity", "--cell-workers", "1")
    assert [record["precision"] for record in outcome.records.values()] == ["fp16", "int8"]
    assert {record["status"] for record in outcome.records.values()} == {"passed"}, outcome.text
