"""The overview shows what happens: its picture is what the example prints, and its commands do what they say."""

import html
import re
import runpy
import shlex

import onnx.parser
import pytest

from tests.kit.runs import ROOT, run_command
from tests.project.test_guides import alike

README = (ROOT / "README.md").read_text(encoding="utf-8")
MODEL = '<ir_version: 8, opset_import: ["": 17]> net (float[batch, 4] x) => (float[batch, 4] y) {y = Tanh(x)}'
PACKAGE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))
"""


def test_it_is_read_in_a_minute_and_its_figures_lead_to_what_made_them():
    assert len(README.split()) <= 700
    rows = [line for line in README.splitlines() if line.startswith("| ") and re.search(r"\d", line)]
    assert [row for row in rows[:1] + rows[3:] if "](docs/" not in row.split("|")[1]] == []


@pytest.mark.thorough
def test_the_picture_shows_what_the_example_prints(tmp_path):
    printed = runpy.run_path(str(ROOT / "docs/make_pictures.py"))["run_example"](tmp_path)
    for colours in ("light", "dark"):
        picture = (ROOT / f"docs/pictures/finding-{colours}.svg").read_text(encoding="utf-8")
        shown = [html.unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", picture)]
        assert [alike(line) for line in shown] == [alike(line) for line in printed if line.strip()]


@pytest.mark.thorough
def test_the_commands_of_the_first_screen_work(tmp_path):
    (tmp_path / "mypackage.py").write_text(PACKAGE, encoding="utf-8")
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "net.onnx")
    block = re.search(r"((?:^    conformance .*\n)+)", README, re.M)
    commands = [part.split("#")[0].strip() for line in block[1].splitlines() for part in line.split("&&")]
    assert [command.split()[1] for command in commands] == ["check", "new", "run", "run"]
    for command in commands[:3]:
        told = run_command(tmp_path, *shlex.split(command)[1:], own_process=True, PYTHONPATH=str(tmp_path))
        assert told.code == 0, told.text
    assert run_command(tmp_path, "accept", "reports/latest", "--baseline", "reports/baseline.jsonl", "*").code == 0
    assert run_command(tmp_path, *shlex.split(commands[3])[1:], own_process=True).code == 0
