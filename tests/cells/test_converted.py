"""Models that converters of other libraries made, each with what the library itself computes."""

from pathlib import Path

import pytest

from conformance.front.cli import main

FOLDER = Path(__file__).parent.parent / "data" / "converted"
MODELS = sorted(file.stem for file in FOLDER.glob("*.onnx"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_another_library_computes_what_the_library_does(tmp_path, capsys, name):
    data = ("--data", str(FOLDER / f"{name}.npz"), "--recorded")
    assert main(["check", str(FOLDER / f"{name}.onnx"), *data, "--store", str(tmp_path)]) == 0
    assert f"passed  recorded[{name}-onnx" in capsys.readouterr().out


def test_every_model_says_what_made_it_and_none_is_large():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in MODELS if f"`{name}`" not in page or not (FOLDER / f"{name}.npz").is_file()] == []
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 200_000
