"""The tensors inside of an engine, whose fusions stay as they are."""

import ctypes

import numpy as np
import onnx
import pytest

from conformance.front.cli import main
from conformance.process.errors import Unavailable
from conformance.runtimes.inner_tensors import values
from conformance.runtimes.tensorrt import debug_listener, engine_tensors
from tests.kit.cases import write_case
from tests.kit.models import model_of
from tests.kit.networks import FP16, PYTHON, network, wrong

CHAIN = "(float[N,3] x) => (float[N,3] y) { a = Sin(x)  b = Neg(a)  c = Relu(b)  y = Cos(c) }"
X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
SHOWN = ("10.12.0", "11.0.0")


@pytest.mark.parametrize("release", SHOWN)
def test_tensors_that_no_fusion_removes_are_given_beside_the_outputs(double, driver, release):
    double(release, driver=driver)
    found = values(model_of(f"g {CHAIN}"), ["a", "b", "c"], "tensorrt", (), {"x": X})
    assert found.keys() == {"a", "c", "y"}  # the double puts a Relu into the node before it
    assert np.allclose(found["a"], np.sin(X)) and np.allclose(found["c"], np.maximum(-np.sin(X), 0))
    assert np.allclose(found["y"], np.cos(found["c"]))


def test_what_is_inside_leaves_no_memory_on_the_device(double):
    double()
    values(model_of(f"g {CHAIN}"), ["a"], "tensorrt", (), {"x": X})
    import device_memory

    assert not device_memory._live


def test_a_tensor_that_cannot_be_copied_is_an_error_and_not_a_missing_value(double, monkeypatch):
    double()

    def fail(*_: object) -> None:
        raise ValueError("it is gone")

    monkeypatch.setattr(debug_listener, "download", fail)
    with pytest.raises(RuntimeError, match="a tensor inside cannot be copied: it is gone"):
        values(model_of(f"g {CHAIN}"), ["a"], "tensorrt", (), {"x": X})


def test_an_address_may_be_a_capsule():
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    assert debug_listener._number(make(4096, None, None)) == debug_listener._number(4096) == 4096


def test_a_tensorrt_that_cannot_show_them_says_since_when_it_is_possible(double):
    double("8.6.0")
    assert "10.11 or later can" in (engine_tensors.absence() or "")
    with pytest.raises(Unavailable, match=r"TensorRT 8\.6\.0 cannot show the tensors inside"):
        engine_tensors.values(onnx.ModelProto(), [], (), {})
    double("8.6.0", fault="nogpu")
    assert (engine_tensors.absence() or "").startswith("no GPU")


# ---- conformance align --runtime tensorrt ----------------------------------------------------------------


def align(folder, monkeypatch, body: str, *arguments: str) -> int:
    write_case(folder / "cases", body, PYTHON)
    monkeypatch.chdir(folder)
    return main(["align", "planted", "--runtime", "tensorrt", *arguments])


def test_align_finds_the_wrong_layer_in_the_engine(double, tmp_path, monkeypatch, capsys):
    double("10.12.0")
    code = align(tmp_path, monkeypatch, wrong("Twice", "symbolic"))
    told = capsys.readouterr().out
    (marked,) = (line for line in told.splitlines() if line.startswith(">>"))
    assert code == 1 and "sub.1" in marked
    assert "by TensorRT, of whose engine only the tensors are shown that no fusion removes" in told


def test_align_finds_nothing_in_a_sound_engine(double, tmp_path, monkeypatch, capsys):
    double("11.0.0")
    assert align(tmp_path, monkeypatch, network("Twice")) == 0
    assert "nothing parts" in capsys.readouterr().out


def test_align_of_a_converted_model_compares_what_the_engine_shows(double, tmp_path, monkeypatch, capsys):
    double("10.12.0")
    assert align(tmp_path, monkeypatch, FP16, "--precision", "fp16") == 1
    assert "NaN or infinite" in capsys.readouterr().out


def test_align_says_why_not_where_tensorrt_cannot_show_its_tensors(double, tmp_path, monkeypatch, capsys):
    double("8.6.0")
    assert align(tmp_path, monkeypatch, network("Twice")) == 2
    said = capsys.readouterr().err
    assert "--runtime tensorrt: TensorRT 8.6.0 cannot show the tensors inside" in said and "Traceback" not in said
