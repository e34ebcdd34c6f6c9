"""A preparation of the deployment that differs from that of training is a finding of its
own, with the slip that explains it; one that differs in the last bits is none."""

import numpy as np
import pytest

from conformance.case.plan.catalogue import plan
from conformance.process.errors import CaseFileError
from tests.kit.cases import PASSED, load_case, say, verdict

IMAGES = np.random.default_rng(4).integers(0, 256, (5, 8, 6, 3), dtype=np.uint8)
PYTHON = """
import numpy as np
import torch

torch.manual_seed(0)
CONV = torch.nn.Conv2d(3, 4, 3)
MEAN, STD = np.array([0.1, 0.5, 0.7]), np.array([0.2, 0.3, 0.4])
MEAN_OF_IMAGENET, STD_OF_IMAGENET = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])

def forward(x):
    return CONV(x)

def flat(x):
    return 0 * x.mean((1, 2, 3)) + 1

def difference(x, z):
    return x - 2 * z

def made(images, mean=MEAN, std=STD, scale=255):
    return np.moveaxis((images / scale - mean) / std, -1, 1).astype(np.float32)

def train(raw):
    return {"x": made(raw["images"])}

def alone(raw):
    return made(raw["images"])

def last_bits(raw):
    return {"x": (made(raw["images"]) * np.float32(1 + 2e-7))}

def eight_bits(raw):
    return {"x": made(np.round(raw["images"] / 255 * 254) / 254 * 255)}

def bgr(raw):
    return {"x": made(raw["images"][..., ::-1], MEAN[::-1], STD[::-1])}

def bgr_image_alone(raw):
    return {"x": made(raw["images"][..., ::-1])}

def unscaled(raw):
    return {"x": made(raw["images"], scale=1)}

def other_order(raw):
    return {"x": made(raw["images"], MEAN[::-1], STD[::-1])}

def exchanged(raw):
    return {"x": made(raw["images"], STD, MEAN)}

def no_mean(raw):
    return {"x": made(raw["images"], mean=0, std=1)}

def imagenet(raw):
    return {"x": made(raw["images"], MEAN_OF_IMAGENET, STD_OF_IMAGENET)}

def plain(raw):
    return {"x": made(raw["images"], 0, 1)}

def raw_bytes(raw):
    return {"x": np.moveaxis(raw["images"], -1, 1).astype(np.float32)}

def nhwc(raw):
    return {"x": np.moveaxis(made(raw["images"]), 1, -1)}

def width_first(raw):
    return {"x": np.swapaxes(made(raw["images"]), 2, 3)}

def bytes(raw):
    return {"x": np.moveaxis(raw["images"], -1, 1)}

def double(raw):
    return {"x": made(raw["images"]).astype(np.float64)}

def one_sample(raw):
    x = made(raw["images"])
    x[3] = x[3, ::-1]
    return {"x": x}

def with_nan(raw):
    x = made(raw["images"])
    x[2, 0, 0, 0] = np.nan
    return {"x": x}

def fewer(raw):
    return {"x": made(raw["images"])[1:]}

def noise(raw):
    return {"x": np.random.default_rng(0).standard_normal(made(raw["images"]).shape).astype(np.float32)}

def raises(raw):
    return {"x": made(raw["image"])}

def nothing(raw):
    return None

def misnamed(raw):
    return {"y": made(raw["images"])}

def spoiling(raw):
    raw["images"][:] = 0
    return {"x": made(raw["images"])}

def two(raw):
    return {"x": made(raw["images"]), "z": made(raw["others"])}

def two_exchanged(raw):
    return {"z": made(raw["images"]), "x": made(raw["others"])}
"""
BODY = """
forward: beside.forward(x)
inputs: {x: "float32[batch, 3, h, w]"}
dims: {batch: 1..9, h: 4..9, w: 4..9}
export: {torchscript: [17]}
runtimes: onnxruntime
specials: false
"""
WRONG = ("failed", "compare", "WrongPreparation", "preparation")


def compared(bench, folder, deployed, right="train", body=BODY, data="data: raw.npz", **arrays):
    """The record of the cell ``preprocess``, on the images above or other arrays."""
    case = load_case(
        folder, say(body, f"preprocess: {{pytorch: beside.{right}, deployed: beside.{deployed}, {data}}}"), PYTHON
    )
    np.savez(folder / "raw.npz", **(arrays or {"images": IMAGES}))
    (cell,) = (one for one in plan(case) if one.check == "preprocess")
    return bench.run_cell(cell)


@pytest.mark.parametrize("deployed", ["alone", "last_bits", "eight_bits"])
def test_the_same_preparation_passes_and_so_does_one_with_other_last_bits(bench, tmp_path, deployed):
    record = compared(bench, tmp_path, deployed)
    assert verdict(record) == PASSED and record.examples == 5, record.reason


@pytest.mark.parametrize("deployed, right, slip", [
    ("bgr", "train", "'x' with the first three channels in the other order (RGB and BGR)"),
    ("bgr_image_alone", "train", "in the other order (RGB and BGR) and times ("),
    ("unscaled", "train", "'x' times 0.003922, plus "),
    ("other_order", "train", "'x' times (2, 1, 0.5), plus (3, 0, -1.5) (scale, mean or deviation by channel)"),
    ("exchanged", "train", "(scale, mean or deviation by channel)"),
    ("no_mean", "train", "'x' times (5, 3.333, 2.5), plus (-0.5, -1.667, -1.75)"),
    ("plain", "imagenet", "'x' less ImageNet's mean and divided by its deviation"),
    ("raw_bytes", "plain", "'x' divided by 255"),
    ("bytes", "plain", "'x' as float32 and 'x' divided by 255"),
    ("bytes", "train", "'x' as float32 and 'x' times (0.01961, 0.01307, 0.009804), plus"),
    ("double", "train", "'x' as float32"),
    ("nhwc", "train", "'x' in the layout with channels first"),
    ("width_first", "train", "'x' with its last two axes exchanged"),
])  # fmt: skip
def test_a_usual_slip_is_found_and_named(bench, tmp_path, deployed, right, slip):
    record = compared(bench, tmp_path, deployed, right)
    assert verdict(record) == WRONG, record.reason
    assert f"beside.{deployed} is right with " in record.reason and slip in record.reason, record.reason


@pytest.mark.parametrize("deployed, said", [
    ("one_sample", "x[3, "), ("with_nan", "makes x[2, 0, 0, 0] nan"), ("fewer", "of shape (4, 3, 8, 6)"),
    ("noise", "at least 40 dB expected"), ("spoiling", "dB"),
])  # fmt: skip
def test_other_differences_are_found_where_they_are_and_no_slip_is_made_up(bench, tmp_path, deployed, said):
    record = compared(bench, tmp_path, deployed)
    assert verdict(record) == WRONG and said in record.reason and "is right with" not in record.reason, record.reason


def test_two_inputs_that_were_exchanged_are_named(bench, tmp_path):
    body = BODY.replace("forward(x)", "difference(x, z)").replace("x: ", 'z: "float32[batch, 3, h, w]", x: ', 1)
    images = {"images": IMAGES, "others": IMAGES[::-1]}
    record = compared(bench, tmp_path, "two_exchanged", "two", body, **images)
    assert verdict(record) == WRONG and "with the inputs 'z' and 'x' exchanged" in record.reason, record.reason


def test_how_near_the_outputs_have_to_be_is_the_users_to_say(bench, tmp_path):
    assert verdict(compared(bench, tmp_path, "eight_bits", data="data: raw.npz, sqnr: 90 dB")) == WRONG


def test_a_module_that_shows_nothing_of_its_inputs_proves_nothing(bench, tmp_path):
    record = compared(bench, tmp_path, "alone", body=BODY.replace("forward(x)", "flat(x)"))
    assert verdict(record) == ("failed", "compare", "Vacuous", "case")


@pytest.mark.parametrize("deployed, right, error, said", [
    ("raises", "train", "KeyError", "'image' (beside.py:"), ("train", "raises", "KeyError", "'image' (beside.py:"),
    ("nothing", "train", "BadData", "returns no array of all samples for x"),
    ("misnamed", "train", "BadData", "returns no array of all samples for x"),
    ("absent", "train", "MissingName", "has no 'absent'"),
    ("train", "nhwc", "BadData", "beside.nhwc: x has shape (5, 8, 6, 3), declared is float32[batch, 3, h, w]"),
    ("train", "bytes", "BadData", "x is uint8, declared is float32"),
])  # fmt: skip
def test_a_preparation_that_cannot_be_used_is_told_with_its_line(bench, tmp_path, deployed, right, error, said):
    record = compared(bench, tmp_path, deployed, right)
    assert verdict(record) == ("failed", "declare", error, "case") and said in record.reason, record.reason


def test_sizes_beyond_the_case_are_refused(bench, tmp_path):
    record = compared(bench, tmp_path, "alone", body=BODY.replace("h: 4..9", "h: 4..7"))
    assert verdict(record) == ("failed", "declare", "BadData", "case")
    assert "beside.train: h is 8, and the case has h: 4..7" in record.reason


@pytest.mark.parametrize("keys, said", [
    ("{pytorch: beside.train, deployed: beside.train, data: raw.npz}", "both beside.train"),
    ("{pytorch: beside.train, deployed: beside.bgr}", "there is no metric whose data it could be"),
])  # fmt: skip
def test_what_a_case_cannot_say_of_its_preparation_is_refused(tmp_path, keys, said):
    with pytest.raises(CaseFileError, match=said):
        load_case(tmp_path, say(BODY, f"preprocess: {keys}"), PYTHON)


def test_the_data_of_the_metric_is_the_raw_data_where_no_other_is_named(bench, tmp_path):
    body = say(BODY, "metric: {of: beside.top1, data: raw.npz, drop: 1}")
    assert verdict(compared(bench, tmp_path, "bgr", body=body, data="sqnr: 40")) == WRONG
