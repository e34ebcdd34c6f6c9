"""``conformance align --operators``: modules without submodules, and what cannot be seen."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from conformance.commands import align as command
from conformance.errors import UserError
from tests.support import write_case

PYTHON = """
import torch


class Alone(torch.nn.Module):
    def forward(self, x, y):
        half = (x.shape[1] - y.shape[1]) // 2
        z = torch.tanh(x) * half
        return z + y.sum()


class Branches(torch.nn.Module):
    def forward(self, x, y):
        return torch.cond(y.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)) * 2
"""
BODY = """
module: beside.{module}
inputs: {{x: "float32[batch, 4]", y: "float32[batch, n]"}}
dims: {{batch: 2..4, n: 3..9}}
export: {{{export}}}
"""


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """The exit code of the command, and what it prints."""

    def run(module: str, export: str, *arguments: str) -> tuple[int, str]:
        write_case(tmp_path / "cases", BODY.format(module=module, export=export), PYTHON)
        monkeypatch.chdir(tmp_path)
        parser = argparse.ArgumentParser()
        command.arguments(parser)
        return command.run(parser.parse_args(["planted", "--operators", *arguments])), capsys.readouterr().out

    return run


@pytest.mark.parametrize("export, operator", [
    ("dynamo: [18]", "operator.floordiv"), ("torchscript: [17]", "aten.floor_divide"),
])  # fmt: skip
def test_a_module_without_submodules_is_aligned_by_operators(typed, export, operator):
    code, out = typed("Alone", export, "--at", "n=5", "--all")
    assert code == 1
    (marked,) = (line for line in out.splitlines() if line.startswith(">>"))
    assert marked.split()[1] == "beside.py:7" and operator in marked
    (tanh,) = (line for line in out.splitlines() if "aten.tanh" in line)
    assert "beside.py:8" in tanh and not tanh.startswith("x")
    assert "its inputs agree; -1 // 2: got 0, wanted -1" in out


@pytest.mark.parametrize("export", ["dynamo: [18]", "torchscript: [17]"])
def test_where_nothing_parts_the_exit_code_is_0(typed, export):
    code, out = typed("Alone", export, "--at", "n=4")
    assert code == 0
    assert out.splitlines()[-1].startswith("nothing parts: ")
    assert "nothing parts: 8 compared" in out


def test_a_branch_is_one_operator(typed):
    code, out = typed("Branches", "dynamo: [18]", "--all")
    assert code == 0
    assert "higher_order.cond" in out


def test_converted_models_have_no_operators_to_align(typed, tmp_path):
    with pytest.raises(UserError, match="--operators"):
        typed("Alone", "torchscript: [17]", "--precision", "fp16")
    assert not Path(tmp_path / ".conformance").exists()
