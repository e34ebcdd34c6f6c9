"""Dims that a file leaves open: which run at one size alone, and what is no such thing; the options of a check."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import ModelProto, save

from conformance.case.files.case_file import load
from conformance.cells.file_sizes import working_sizes
from conformance.front.cli import main
from tests.kit.models import model_of

ROWS = "net (float[batch, 4] x) => (float[batch, 4] y) { z = Reshape (x, shape) y = Abs (z) }"
BAKED, SOUND = (model_of(ROWS, shape=np.array([size, 4])) for size in (2, -1))
BOTH = model_of("net (float[h, w] x) => (float[h, w] y) { a = MatMul (x, right) y = MatMul (left, a) }",
                right=np.ones((4, 3), np.float32), left=np.ones((3, 4), np.float32))  # fmt: skip
SUM = model_of("net (float[batch, 4] x) => (float[batch, 4] y) { y = Add (x, c) }", c=np.ones((2, 4), np.float32))
EQUAL = model_of("net (float[a, 4] x, float[b, 4] z) => (float[a, 8] y) { y = Concat <axis = 1> (x, z) }")
TOKENS = model_of(
    "net (float[1, 1, side, side] x, float[tokens, 16] p) => (float[t, 16] y) "
    "{ r = Reshape (x, shape) e = Shape (r) y = Reshape (p, e) }", shape=np.array([-1, 16]),
)  # fmt: skip
GIVEN = model_of(
    "net (int64[1] which, float[batch, 4] x) => (float[n, 4] y) "
    "{ n = Gather (sizes, which) s = Concat <axis = 0> (n, four) y = Reshape (x, s) }",
    sizes=np.array([2, 3]), four=np.array([4]),
)  # fmt: skip
STEPS = model_of("net (float[n, 3] x) => (float[m, 16, 3] y) { y = Reshape (x, shape) }", shape=np.array([-1, 16, 3]))


@pytest.mark.parametrize(("made", "sizes", "proven"), [
    (SOUND, {"batch": "1..8"}, {}), (BAKED, {"batch": "2"}, {"batch": True}),
    (BOTH, {"h": "4", "w": "4"}, {"h": True, "w": True}), (SUM, {"batch": "1..2"}, {"batch": False}),
    (EQUAL, {"a": "1..8", "b": "a"}, {}), (STEPS, {"n": "16..32 step 16"}, {}),
    (TOKENS, {"side": "16", "tokens": "16"}, {"side": False, "tokens": False}),
], ids=["sound", "baked", "both baked", "broadcast", "equal", "steps", "tokens"])  # fmt: skip
def test_only_a_dim_that_nothing_else_explains_is_said_to_run_at_one_size(tmp_path, made, sizes, proven):
    found, narrow = working_sizes(case_of(tmp_path, made), ())
    assert found == sizes and {dim.name: dim.proven for dim in narrow} == proven


def test_a_size_that_the_values_of_an_input_say_is_no_fault_of_the_file(tmp_path):
    """It is made into as many rows as the other input says, 2 or 3: all other batches stop."""
    _, narrow = working_sizes(case_of(tmp_path, GIVEN), ())
    assert [(dim.name, dim.proven) for dim in narrow] == [("batch", False)]


def case_of(folder: Path, made: ModelProto):
    save(made, folder / "net.onnx")
    (folder / "net.yaml").write_text("net:\n  about: a file\n  onnx: net.onnx\n", encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return case


def check(folder: Path, *words: str) -> int:
    words = ("--precision", "fp32", "--runtime", "onnxruntime", *words)
    return main(["check", *words, "--examples", "0", "--store", str(folder / ".store")])


def test_a_baked_batch_fails_the_check_unless_the_user_says_that_it_is_enough(tmp_path, capsys):
    save(BAKED, tmp_path / "net.onnx")
    file, reports = str(tmp_path / "net.onnx"), (f"json={tmp_path}/a.json", f"junit={tmp_path}/a.xml")
    assert check(tmp_path, file, "--output", reports[0], "--output", reports[1]) == 1
    told = capsys.readouterr().out
    assert (
        "wrong: batch is open in the file, which runs at 2 alone; at 1, 3, 4 and 8 it stops in ONNX Runtime" in told
    )
    assert "cannot reshape array of size 12 into shape (2,4)" in told and "--dim batch=2" in told
    (model,) = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["models"]
    assert model["verdict"] == "wrong" and model["narrow"][0]["ran"] == [2]
    (suite,) = ElementTree.parse(tmp_path / "a.xml").getroot()
    assert suite.get("failures") == "1" and suite.find("testcase[@name='dim batch']/failure") is not None
    assert check(tmp_path, file, "--dim", "batch=2") == 0
    assert "batch is open" not in capsys.readouterr().out


def test_of_several_models_the_one_with_a_baked_batch_is_wrong(tmp_path, capsys):
    save(BAKED, tmp_path / "baked.onnx")
    save(SUM, tmp_path / "sum.onnx")
    assert check(tmp_path, str(tmp_path), "--jobs", "1") == 1
    told = capsys.readouterr().out
    assert "2 models: 1 right, 1 wrong" in told and "  wrong: batch is open" in told
    assert "  not verified: batch is open in the file, which runs at 1 and 2 alone" in told


def test_dims_that_are_said_to_fit_together_are_tried_so(tmp_path, capsys):
    joined = model_of(
        "net (float[past, 4] k, float[seq, 4] n, float[total, 4] m) => (float[total, 4] y) "
        "{ c = Concat <axis = 0> (k, n) s = Shape (c) r = Reshape (m, s) y = Mul (c, r) }"
    )
    save(joined, tmp_path / "net.onnx")
    assert check(tmp_path, str(tmp_path / "net.onnx")) == 2
    assert "--dim 'total=past + seq'" in capsys.readouterr().err
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--dim", "total=past + seq") == 0
    assert "sizes: past 1..8, seq 1..8, total past + seq" in capsys.readouterr().out


# ---- options as in a run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "said"), [
    (["--runtime", "onnxruntim"], "--runtime: there is no 'onnxruntim'; did you mean 'onnxruntime'?"),
    (["--runtime", "other"], "known: onnxruntime,"), (["--runtime", "onnx-reference"], "says what is right"),
    (["--session", "key"], "--session key: write NAME=VALUE"),
    (["--tolerance", "rtol"], "--tolerance rtol: write NAME=VALUE"),
    (["--tolerance", "fp16:sqr=3"], "there is no 'sqr'; did you mean 'sqnr'?"),
    (["--tolerance", "fp9:sqnr=3"], "there is no 'fp9'"), (["--tolerance", "rtol=x"], "has to be a number, not 'x'"),
    (["--tolerance", "rtol=1", "--tolerance", "fp32:atol=1"], "given twice"),
])  # fmt: skip
def test_an_option_that_cannot_be_is_refused_in_a_sentence(tmp_path, capsys, words, said):
    save(SOUND, tmp_path / "net.onnx")
    assert check(tmp_path, str(tmp_path / "net.onnx"), *words) == 2
    assert said in capsys.readouterr().err


def test_a_session_option_that_is_not_known_has_to_be_corrected(tmp_path, capsys):
    save(SOUND, tmp_path / "net.onnx")
    file, right = str(tmp_path / "net.onnx"), ("--session", "session.set_denormal_as_zero=1")
    assert check(tmp_path, file, "--dim", "batch=2", *right, "--session", "session.x64quantprecision=1") == 0
    assert check(tmp_path, file, "--dim", "batch=2", *right, "--session", "session.x64quantprecison=1") == 2
    assert "did you mean 'session.x64quantprecision'?" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_tolerance_decides_and_only_the_runtimes_that_are_named_run(tmp_path, capsys):
    save(model_of("net (float[n, 4] x) => (float[n, 4] y) { y = Mul (x, c) }", c=np.float32(1)), tmp_path / "a.onnx")
    save(
        model_of("net (float[n, 4] x) => (float[n, 4] y) { y = Mul (x, c) }", c=np.float32(1.01)), tmp_path / "b.onnx"
    )
    both = (str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"), "--dim", "n=1..4")
    assert check(tmp_path, *both) == 1
    capsys.readouterr()
    assert check(tmp_path, *both, "--tolerance", "rtol=0.1,atol=0.1") == 0
    told = capsys.readouterr().out
    assert "right: onnxruntime in fp32\n" in told and "openvino" not in told and "tensorrt" not in told
