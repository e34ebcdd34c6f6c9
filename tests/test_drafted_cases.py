"""``conformance new --from``: a case of a module that is there, whose inputs are found by trying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.case.file import load
from conformance.cli import main
from conformance.draft.drafting import Draft, Request, as_text, configuration, drafted
from conformance.errors import Stopped

BESIDE = """
import dataclasses
import torch


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    loss: None = None


class Object(torch.nn.Module):
    def forward(self, x):
        return Answer(x.sin())


class Blocks(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], -1, 16).sum(1)


class Picky(torch.nn.Module):
    def forward(self, x):
        raise ValueError("only on Sundays")


class Named(torch.nn.Module):
    main_input_name = "input_ids"

    def __init__(self, config=None):
        super().__init__()
        self.table = torch.nn.Embedding(11, 6)

    def forward(self, other=None, input_ids=None, attention_mask=None):
        assert other is None
        return self.table(input_ids) * attention_mask[..., None]


class Config:
    pass


Named.config_class = Config


def build():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 30 * 30, 2))
"""


def draft(folder: Path, module: str, inputs: dict[str, str] | None = None, **given: Any) -> tuple[Draft, str]:
    """What is found of a module, and the case file, which loads."""
    (folder / "own.py").write_text(BESIDE, encoding="utf-8")
    request = Request(folder, module, given, inputs or {})
    found = drafted(request)
    text = as_text("one", request, found, {}, awake=False)
    (folder / "one.yaml").write_text(text, encoding="utf-8")
    load(folder / "one.yaml")
    return found, text


@pytest.mark.parametrize(
    ("module", "given", "types"),
    [
        ("torch.nn.Linear", {"in_features": 4, "out_features": 3}, ["float32[batch, 4]"]),
        ("torch.nn.Conv1d", {"in_channels": 4, "out_channels": 3, "kernel_size": 3}, ["float32[batch, 4, l]"]),
        ("torch.nn.Conv2d", {"in_channels": 4, "out_channels": 3, "kernel_size": 3}, ["float32[batch, 4, h, w]"]),
        ("torch.nn.BatchNorm2d", {"num_features": 5}, ["float32[batch, 5, h, w]"]),
        ("torch.nn.LSTM", {"input_size": 6, "hidden_size": 5}, ["float32[batch, seq, 6]"]),
        ("torch.nn.Embedding", {"num_embeddings": 9, "embedding_dim": 5}, ["int64[batch, seq]"]),
        ("torch.nn.LayerNorm", {"normalized_shape": 7}, ["float32[batch, 7]"]),
        ("torch.nn.MultiheadAttention", {"embed_dim": 8, "num_heads": 2}, ["float32[batch, seq, 8]"] * 3),
        ("torch.nn.Bilinear", {"in1_features": 4, "in2_features": 5, "out_features": 2},
         ["float32[batch, 4]", "float32[batch, 5]"]),
        ("torch.nn.Softplus", {}, ["float32[batch, 4]"]),
    ],
)  # fmt: skip
def test_the_inputs_of_a_module_are_found(
    tmp_path: Path, module: str, given: dict[str, Any], types: list[str]
) -> None:
    found, _ = draft(tmp_path, module, **given)
    assert [guess.type for guess in found.inputs.values()] == types


def test_whole_numbers_stay_within_the_table(tmp_path: Path) -> None:
    _, text = draft(tmp_path, "torch.nn.Embedding", num_embeddings=9, embedding_dim=5)
    assert "high: 8" in text and "# indices into a table of 9 rows" in text


def test_only_dims_that_vary_are_dims(tmp_path: Path) -> None:
    found, text = draft(tmp_path, "own.build")
    assert list(found.dims) == ["batch"] and found.held == {"h": 32, "w": 32}
    assert '"float32[batch, 3, 32, 32]"' in text


def test_a_size_that_has_to_be_a_multiple_stays_at_one_size(tmp_path: Path) -> None:
    found, _ = draft(tmp_path, "own.Blocks", {"x": "float32[batch, k, 16]"})
    assert found.dims == {"batch": "1..6", "k": "1..7"}
    found, text = draft(tmp_path, "own.Blocks", {"x": "float32[batch, h]"})
    assert found.held == {"h": 32} and "float32[batch, 32]" in text


def test_what_is_passed_by_name_and_what_an_object_holds_is_said(tmp_path: Path) -> None:
    found, text = draft(tmp_path, "own.Named")
    assert found.keywords == {"input_ids", "attention_mask"}
    assert "as: input_ids" in text and "as: attention_mask" in text
    found, text = draft(tmp_path, "own.Object")
    assert found.returns == ("logits",) and "returns: [logits]" in text


def test_the_class_of_a_configuration_is_the_modules(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(BESIDE, encoding="utf-8")
    assert configuration(tmp_path, "own.Named") == "own.Config"
    with pytest.raises(Stopped, match="does not say of which class"):
        configuration(tmp_path, "own.Object")


@pytest.mark.parametrize(
    ("module", "given", "said"),
    [
        ("own.Picky", {}, "no inputs that were tried (ValueError: only on Sundays); say them, as in --input x="),
        ("own.Nobody", {}, "has no 'Nobody'"),
        ("own.Config", {}, "gave a Config, not a torch.nn.Module"),
        ("torch.nn.Linear", {"in_feature": 4}, "cannot be built: TypeError"),
    ],
)
def test_what_makes_no_case_is_said(tmp_path: Path, module: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Stopped) as stopped:
        draft(tmp_path, module, **given)
    assert said in str(stopped.value.reason)


def test_the_command_writes_a_case_and_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--from", "torch.nn.Linear", "--with", "in_features=4", "--with", "out_features=3"]
    assert main(["new", "line", *given]) == 0
    told = capsys.readouterr().out
    assert "passed  accuracy[line-dynamo-op20-onnxruntime-fp32]" in told
    assert "wrote cases/line.yaml; run it with" in told
    (case,) = load(tmp_path / "cases" / "line.yaml")
    assert case.says.given == {"in_features": 4, "out_features": 3}
    assert main(["new", "line", *given]) == 2
    assert "is there already" in capsys.readouterr().err


def test_an_exporter_that_cannot_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The TorchScript exporter has no asinh at all, where dynamo's translation has it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "own.py").write_text(
        "import torch\n\nclass Own(torch.nn.Module):\n    def forward(self, x):\n        return x.asinh()\n",
        encoding="utf-8",
    )
    assert main(["new", "bent", "--from", "own.Own"]) == 0
    text = (tmp_path / "cases" / "bent.yaml").read_text(encoding="utf-8")
    assert "# torchscript: [17] does not export it: UnsupportedOperatorError" in text
    assert "    dynamo: [20]" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--with", "a=1"], "are about the module of --from"),
        (["--from", "torch.nn.ReLU", "--with", "a"], "write NAME=VALUE"),
        (["--from", "torch.nn.ReLU", "--with", "a={"], "is no YAML"),
        (["--from", "torch.nn.Nothing"], "has no 'Nothing'"),
        (["--from", "torch.nn.ReLU", "--input", "x=float32[batch]"], "takes no input 'x'"),
        (["--from", "torch.nn.ReLU", "--input", "input=float32[batch"], "input: "),
    ],
)
def test_the_command_says_what_it_cannot_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "line", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.yaml"))
