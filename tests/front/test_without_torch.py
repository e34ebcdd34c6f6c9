"""Without PyTorch, files are checked as with it, and what needs it says so once."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.kit.models import model_of
from tests.kit.runs import Outcome, run_command

HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torchvision", "onnxscript"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""
BROKEN = 'raise OSError("libcudart.so.13: cannot open shared object file")\n'
LACKS = "PyTorch, which is not installed: pip install 'onnx-export-conformance[torch]'"
FILES = """
sound: {about: a file, onnx: net.onnx, specials: false, examples: {shapes: 1, values: 1}}
wrong: {about: another, onnx: net.onnx, specials: false, export: {onnx: {opsets: [17], file: wrong.onnx}}}
"""
MODULE = 'sine: {about: a module, forward: torch.sin(x), inputs: {x: "float32[b, 3]"}, dims: {b: 1..4}}\n'
GRAPH = "net (float[batch, 5] x) => (float[batch, 4] y) {{ a = MatMul(x, w) y = {}(a) }}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file and one that computes something else, with cases about them and about a module."""
    weights = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    weights[1::2] *= 0.01  # products of neighbours, which processors without VNNI add up in 16 bits, fit into them
    for name, operator in (("net", "Relu"), ("wrong", "Sigmoid")):
        onnx.save(model_of(GRAPH.format(operator), w=weights), tmp_path / f"{name}.onnx")
    (tmp_path / "files.yaml").write_text(FILES, encoding="utf-8")
    (tmp_path / "module.yaml").write_text(MODULE, encoding="utf-8")
    return tmp_path


def run(folder: Path, command: str, torch: str | None = None) -> Outcome:
    """Run a command where PyTorch is hidden, or is a module with this text."""
    (folder / "hidden").mkdir(exist_ok=True)
    if torch is None:
        (folder / "hidden/sitecustomize.py").write_text(HIDDEN, encoding="utf-8")
    else:
        (folder / "hidden/torch.py").write_text(torch, encoding="utf-8")
    return run_command(folder, *command.split(), own_process=True, PYTHONPATH=str(folder / "hidden"))


def test_a_file_is_right_or_wrong_in_each_precision(folder):
    sound, wrong = (
        run(folder, f"check {files} --examples 1") for files in ("net.onnx", "net.onnx wrong.onnx --precision fp32")
    )
    assert sound.code == 0 and "right: onnxruntime in fp32, fp16, int8" in sound.text
    assert wrong.code == 1 and "FAILED  accuracy[net-onnx-op17-onnxruntime-fp32]" in wrong.text


def test_cases_of_files_run_and_what_reads_a_run_tells_of_them(folder):
    ran = run(folder, "run files.yaml --runtime onnxruntime --explain none --examples 1")
    assert ran.code == 1
    verdicts = {(one["case"], one["check"]): one["status"] for one in ran.records.values()}
    assert verdicts["sound", "accuracy"] == "passed" and verdicts["wrong", "accuracy"] == "failed"
    for command, code, said in (
        ("findings reports/latest", 1, "WrongValue"),
        ("diff reports/latest reports/latest", 0, "no change"),
        ("report reports/latest --html page.html", 0, "page.html"),
        ("doctor", 0, "onnxruntime: runs here"),
    ):
        found = run(folder, command)
        assert (found.code, said in found.text) == (code, True), found.text


def test_a_bundle_of_a_file_is_packed_and_replayed(folder):
    packed = run(folder, "pack bundle --runtime onnxruntime --cases files.yaml -k sound --examples 2")
    replayed = run(folder, "replay bundle --runtime onnxruntime")
    assert (packed.code, replayed.code) == (0, 0), packed.text + replayed.text


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("run files.yaml module.yaml", 4),
        ("new net --from torch.nn.Linear", 2),
        ("align sine --cases module.yaml", 2),
        ("mutants module.yaml", 2),
        ("watch module.yaml", 2),
        ("pack bundle --runtime onnxruntime --cases module.yaml", 2),
    ],
)
def test_what_needs_pytorch_says_so_once_with_the_command_to_type(folder, command, code):
    found = run(folder, command)
    assert (found.code, found.text.count(LACKS)) == (code, 1), found.text


def test_a_finding_of_a_file_is_fixed_and_one_of_a_module_says_what_is_missing(folder):
    assert run(folder, "run files.yaml --runtime onnxruntime --explain none --examples 1").code == 1
    fixed = run(folder, "findings reports/latest --fix all")
    assert fixed.code == 0 and "Changes with which the first cell of a finding passes" in fixed.text
    assert "1 of " in fixed.text and LACKS not in fixed.text, fixed.text
    records = folder / "reports/latest/records.jsonl"
    records.write_text(records.read_text().replace('"exporter":"onnx"', '"exporter":"dynamo"'), encoding="utf-8")
    (folder / "reports/latest/run.json").unlink()
    refused = run(folder, "findings reports/latest --fix all")
    assert (refused.code, refused.text.count(LACKS)) == (2, 1), refused.text


def test_a_pytorch_that_cannot_be_imported_is_said_as_what_it_is(folder):
    found = run(folder, "align sine --cases module.yaml", BROKEN)
    assert found.code == 2
    assert "PyTorch, which is installed and cannot be imported: OSError: libcudart.so.13" in found.text
