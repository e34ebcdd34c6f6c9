"""Plants one bad node in a network and checks that the sensitivity analysis finds it and gives the right advice."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from ruamel.yaml import YAML

from conformance import cli
from conformance.precision import convert
from conformance.records.record import Record
from conformance.sensitivity.command import _print
from conformance.sensitivity.ranking import Kept, Ranking, candidates, evaluation, rank
from conformance.worker.warm import prepare_process
from tests.support import PASSED, Bench, say, verdict, write_case

PYTHON = """
import numpy as np
import torch


class Uneven(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.spread = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.gather = torch.nn.Conv2d(8, 4, 1)
        self.last = torch.nn.Conv2d(4, 4, 1)
        sizes = torch.logspace(0, 2, 8)
        with torch.no_grad():
            self.spread.weight *= sizes[:, None, None, None]
            self.spread.bias *= sizes
            self.gather.weight /= sizes[None, :, None, None]

    def forward(self, x):
        return self.last(self.gather(self.spread(x)))


class WithItsInput(Uneven):
    def forward(self, x):
        return x * 2, super().forward(x)


class Subnormal(torch.nn.Module):
    '''Between two ordinary layers, one whose weights have three digits fewer in fp16 than others.'''

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 16, bias=False)
        self.tiny = torch.nn.Linear(16, 16, bias=False)
        self.last = torch.nn.Linear(16, 4)
        with torch.no_grad():
            self.first.weight *= 1000
            self.tiny.weight *= 1e-5

    def forward(self, x):
        return self.last(torch.tanh(self.tiny(self.first(x)) * 100))


class Labels(Uneven):
    def forward(self, x):
        return super().forward(x).argmax(1)


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.up = torch.nn.Linear(4, 4)
        self.down = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        if x.sum() > 0:
            y = torch.tanh(self.up(x))
        else:
            y = torch.sigmoid(self.down(x))
        return y * 2


class Large(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x * 0.01) + x * x


def small(rng):
    yield {"x": rng.normal(size=(8, 4)).astype("float32")}
"""

COMMON = """
dims: {batch: 1..4}
runtimes: onnxruntime
specials: false
"""
UNEVEN = say('module: beside.Uneven\ninputs: {x: "float32[batch, 3, 6, 6]"}', COMMON, "export: {torchscript: [17]}")
SUBNORMAL = say('module: beside.Subnormal\ninputs: {x: "float32[batch, 16]"}', COMMON, "export: {torchscript: [17]}")
LARGE = say(
    'module: beside.Large\ninputs: {x: {type: "float32[batch, 4]", values: {uniform: {low: 300, high: 500}}}}',
    COMMON,
    "export: {torchscript: [17]}",
)

PLANTED = {"int8": (UNEVEN, "/gather/Conv"), "fp16": (SUBNORMAL, "/tiny/MatMul")}
"""By precision: a case, and the node that costs its accuracy."""
BOTH = pytest.mark.parametrize("precision", PLANTED)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    """As in a worker."""
    prepare_process()


def with_precision(body: str, precision: str, says: str = "") -> str:
    return say(body, f"precisions: {{{precision}: {{{says}}}}}")


def fidelity(bench: Bench, body: str) -> Record:
    (cell,) = (one for one in bench.cells(body, PYTHON) if one.check == "fidelity")
    return bench.run_cell(cell, examples=2)


# ---- the ranking ---------------------------------------------------------------------------------------------


@dataclass
class Conversion:
    """What a fidelity cell converted, and from what."""

    record: Record
    given: convert.Source
    model: Any
    batches: list[dict[str, Any]]
    steps: list[tuple[int, int, str]] = field(default_factory=list)

    def rank(self) -> Ranking:
        return rank(self.given, self.model, self.batches, [], lambda *step: self.steps.append(step))


@pytest.fixture
def conversion_of(tmp_path, monkeypatch):
    """``conversion_of(body)``: how its only model of another precision is made."""
    bench = Bench(tmp_path, tmp_path / "store")
    made: list[tuple[Any, Any, Any]] = []
    original = convert.convert

    def spy(given, feeds, measured):
        model, told = original(given, feeds, measured)
        made.append((given, model, feeds.batches))
        return model, told

    monkeypatch.setattr(convert, "convert", spy)

    def conversion(body: str) -> Conversion:
        record = fidelity(bench, body)
        return Conversion(record, *made[-1])

    return conversion


@BOTH
def test_the_planted_node_comes_first_and_wins_back_most_of_what_was_lost(conversion_of, precision):
    body, node = PLANTED[precision]
    made = conversion_of(with_precision(body, precision))
    assert verdict(made.record) == ("failed", "compare", "LowFidelity", "precision")
    ranking = made.rank()
    first, *others = ranking.nodes
    assert first.node == node
    assert first.gain > 5
    assert first.sqnr == pytest.approx(ranking.sqnr + first.gain)
    assert all(one.gain < first.gain / 2 for one in others)
    assert [one.gain for one in ranking.nodes] == sorted((one.gain for one in ranking.nodes), reverse=True)
    assert ranking.exclude()[0] == node
    assert ranking.sqnr == pytest.approx(made.record.fidelity["sqnr"], abs=3)


@BOTH
def test_keeping_nodes_in_fp32_leaves_both_models_as_they_were(conversion_of, precision):
    made = conversion_of(with_precision(PLANTED[precision][0], precision))
    before = made.model.SerializeToString(deterministic=True), made.given.model.SerializeToString(deterministic=True)
    first = made.rank()
    after = made.model.SerializeToString(deterministic=True), made.given.model.SerializeToString(deterministic=True)
    assert before == after
    assert made.rank() == first


def test_an_int8_model_is_as_it_was_though_a_node_cannot_be_run(conversion_of, monkeypatch):
    """The bypass is taken back where the model in between is refused."""
    from conformance.sensitivity import ranking as sensitivity

    made = conversion_of(with_precision(UNEVEN, "int8"))
    before = made.model.SerializeToString(deterministic=True)

    def refuse(got, wanted):
        made.steps.append((0, 0, "asked"))
        if len(made.steps) > 2:
            raise RuntimeError("planted")
        return 10.0

    monkeypatch.setattr(sensitivity, "_sqnr", refuse)
    with pytest.raises(RuntimeError, match="planted"):
        made.rank()
    assert made.model.SerializeToString(deterministic=True) == before


@BOTH
def test_every_node_is_announced_once_with_how_many_there_are(conversion_of, precision):
    made = conversion_of(with_precision(PLANTED[precision][0], precision))
    ranking = made.rank()
    names = candidates(made.given, made.model)
    assert made.steps == [(done, len(names), name) for done, name in enumerate(names)]
    assert sorted(one.node for one in ranking.nodes) == sorted(names)
    assert len(names) > 2


@BOTH
def test_nodes_that_stay_in_fp32_already_are_not_ranked(conversion_of, precision):
    body, node = PLANTED[precision]
    made = conversion_of(with_precision(body, precision, f"exclude: {node}"))
    assert verdict(made.record) == PASSED
    assert node not in [one.node for one in made.rank().nodes]


def test_the_output_with_most_noise_decides(conversion_of):
    body = with_precision(UNEVEN, "int8")
    exact_first = conversion_of(body.replace("beside.Uneven", "beside.WithItsInput"))
    assert exact_first.rank().sqnr == pytest.approx(conversion_of(body).rank().sqnr, abs=2)


@BOTH
def test_a_node_that_is_put_into_exclude_wins_back_what_the_ranking_promised(conversion_of, precision):
    body, _ = PLANTED[precision]
    made = conversion_of(with_precision(body, precision))
    promised = made.rank()
    for one in promised.nodes:
        says = with_precision(body, precision, f'exclude: ["{one.node}"]')
        kept = conversion_of(says)
        assert kept.given.kept == {one.node}
        kept.batches = made.batches
        assert kept.rank().sqnr == pytest.approx(one.sqnr, abs=1e-6), one.node


@BOTH
def test_the_whole_list_in_exclude_wins_back_at_least_as_much_as_its_first_node(conversion_of, precision):
    body, _ = PLANTED[precision]
    made = conversion_of(with_precision(body, precision))
    promised = made.rank()
    names = ", ".join(f'"{name}"' for name in promised.exclude())
    together = conversion_of(with_precision(body, precision, f"exclude: [{names}]"))
    together.batches = made.batches
    assert together.rank().sqnr >= promised.nodes[0].sqnr - 0.1


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_model_of_integers_alone_has_no_gains_and_no_nan(conversion_of, precision):
    made = conversion_of(with_precision(UNEVEN.replace("beside.Uneven", "beside.Labels"), precision))
    ranking = made.rank()
    assert ranking.nodes
    assert {one.gain for one in ranking.nodes} == {0.0}
    assert ranking.exclude() == []


def test_a_node_with_branches_is_ranked_and_can_be_excluded(conversion_of):
    body = UNEVEN.replace("beside.Uneven", "beside.Branches").replace("[batch, 3, 6, 6]", "[batch, 4]")
    body = say(body, "script: true")
    made = conversion_of(with_precision(body, "fp16"))
    assert verdict(made.record) == PASSED
    promised = made.rank()
    (branches,) = (one for one in promised.nodes if one.operator == "If")
    kept = conversion_of(with_precision(body, "fp16", "exclude: If"))
    assert verdict(kept.record) == PASSED
    kept.batches = made.batches
    assert kept.rank().sqnr == pytest.approx(branches.sqnr, abs=1e-6)


@pytest.mark.xfail(strict=True, reason="where neighbours overflow too, one node alone wins nothing back")
def test_a_node_whose_values_overflow_comes_first(conversion_of):
    made = conversion_of(with_precision(LARGE, "fp16", "calibration: {data: beside.small, samples: 8}"))
    assert made.record.error == "WrongInf"
    made.batches = [{"x": np.random.default_rng(0).uniform(300, 500, (8, 4)).astype("float32")}]
    ranking = made.rank()
    assert ranking.sqnr < 20
    assert ranking.nodes[0].node in ("/Mul_1", "/Add")


@pytest.mark.parametrize("gains, expected", [
    ([9.0, 0.2, 0.05, -1.0], ["n0", "n1"]),
    ([0.1], ["n0"]),
    ([0.09, -3.0], []),
    ([1.0] * 14, [f"n{index}" for index in range(10)]),
    ([], []),
])  # fmt: skip
def test_only_nodes_that_win_something_back_are_worth_excluding(gains, expected):
    nodes = [Kept(f"n{index}", "Conv", 20 + gain, gain) for index, gain in enumerate(gains)]
    assert Ranking(20.0, nodes).exclude() == expected


def test_a_node_that_alone_loses_anything_has_the_longest_bar(bench, capsys):
    body = with_precision(say("forward: x * 2", "inputs: {x: 'float32[3]'}", "export: {torchscript: [17]}"), "fp16")
    (cell,) = (cell for cell in bench.cells(body) if cell.check == "fidelity")
    ranking = Ranking(30.0, [Kept("one", "MatMul", np.inf, np.inf), Kept("two", "Add", 32.0, 2.0)])
    _print(Console(width=100), cell, ranking, 5)
    lines = {line.split()[0]: line.count("█") for line in capsys.readouterr().out.splitlines() if "█" in line}
    assert lines["one"] >= lines["two"] > 0


@pytest.mark.parametrize(
    "sizes, most, expected", [([4, 4, 4], 8, 2), ([4, 4, 4], 1, 1), ([4, 4], 99, 2), ([1], 8, 1)]
)
def test_batches_are_taken_until_there_are_enough_samples(sizes, most, expected):
    batches = [{"x": np.zeros((size, 2), "float32")} for size in sizes]
    assert len(evaluation(batches, most)) == expected


# ---- the command -------------------------------------------------------------------------------------------------


def conformance(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as users call it, in a process of its own."""
    command = [sys.executable, "-m", "conformance.cli", "sensitivity", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def advice(printed: str) -> dict[str, Any]:
    """The line to put into the case, parsed."""
    (line,) = (line for line in printed.splitlines() if line.startswith("precisions:"))
    found = YAML(typ="safe", pure=True).load(line)
    assert isinstance(found, dict)
    return found


@BOTH
def test_the_advice_of_the_command_put_into_the_case_makes_it_pass(tmp_path, bench, precision):
    body, node = PLANTED[precision]
    assert verdict(fidelity(bench, with_precision(body, precision))) == (
        "failed", "compare", "LowFidelity", "precision"
    )  # fmt: skip
    write_case(tmp_path / "cases", with_precision(body, precision), PYTHON)
    done = conformance(tmp_path, "planted", "--precision", precision, "--picture", "picture.svg")
    assert done.returncode == 0, done.stderr
    says = advice(done.stdout)
    assert node in says["precisions"][precision]["exclude"]["torchscript"]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("precisions:"))
    assert verdict(fidelity(bench, say(body, line))) == PASSED
    root = ElementTree.parse(tmp_path / "picture.svg").getroot()
    assert root.tag.endswith("svg")
    shown = "".join(root.itertext())
    assert node in shown.replace("\xa0", " ")
    assert f"planted, {precision}" in shown.replace("\xa0", " ")
    assert "wrote picture.svg" in done.stderr
    assert "Traceback" not in done.stderr


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """``command(body, *arguments)``: the command in this process, in a folder with one case ``planted``."""

    def run(body: str, *arguments: str) -> Said:
        write_case(tmp_path / "cases", body, PYTHON)
        monkeypatch.chdir(tmp_path)
        code = cli.main(["sensitivity", *arguments])
        return Said(code, *capsys.readouterr())

    return run


def assert_refused(said: Said, *parts: str) -> None:
    """Exit code 2 and one line that says what to correct."""
    assert said.code == 2
    (line,) = (line for line in said.err.splitlines() if line.startswith("conformance sensitivity: "))
    assert "Traceback" not in said.err
    for part in parts:
        assert part in line


UNEVEN_INT8 = with_precision(UNEVEN, "int8")
SINE = say('forward: torch.sin(x)\ninputs: {x: "float32[batch, 4]"}', COMMON, "export: {torchscript: [17]}")


@pytest.mark.parametrize("body, arguments, parts", [
    pytest.param(UNEVEN_INT8, ["plantd"], ["there is no case 'plantd'; did you mean 'planted'?"], id="unknown case"),
    pytest.param(UNEVEN_INT8, ["qqq"], ["there is no case 'qqq'; known: planted"], id="nothing like it"),
    pytest.param(UNEVEN, ["planted"], ["planted has no precision besides fp32", "precisions: {int8: {}}"],
                 id="no precisions"),
    pytest.param(UNEVEN_INT8, ["planted", "--exporter", "dynamo"],
                 ["planted has no such cell; it has torchscript 17 int8"], id="exporter"),
    pytest.param(UNEVEN_INT8, ["planted", "--opset", "18"], ["planted has no such cell; it has torchscript 17 int8"],
                 id="opset"),
    pytest.param(UNEVEN_INT8, ["planted", "--precision", "fp16"], ["no such cell; it has torchscript 17 int8"],
                 id="precision"),
    pytest.param(UNEVEN_INT8, ["planted", "--precision", "nosuch"], ["no such cell"], id="no precision at all"),
    pytest.param(UNEVEN_INT8, ["planted", "--cases", "nosuch"], ["no such case file or folder"], id="no folder"),
    pytest.param(with_precision(SINE, "int8"), ["planted"], ["planted at int8: there is nothing to quantize"],
                 id="nothing to quantize"),
    pytest.param(with_precision(UNEVEN, "int8", "exclude: nosuch"), ["planted"], ["no node or operator 'nosuch'"],
                 id="exclude"),
    pytest.param(with_precision(UNEVEN, "int8", "calibration: {data: nosuch.npy}"), ["planted"],
                 ["calibration: there is no cases/nosuch.npy"], id="calibration"),
    pytest.param(UNEVEN_INT8.replace("beside.Uneven", "beside.Nosuch"), ["planted"], ["beside.py has no 'Nosuch'"],
                 id="module"),
    pytest.param(UNEVEN_INT8 + "\nneeds: a_package_that_nobody_has", ["planted"], ["is not installed"], id="needs"),
    pytest.param(UNEVEN_INT8 + "\ntag: x", ["planted"], ["did you mean 'tags'?"], id="case file"),
    pytest.param(UNEVEN_INT8, ["planted", "--picture", "nosuch/picture.svg"], ["nosuch/picture.svg"], id="picture"),
])  # fmt: skip
def test_what_the_user_has_to_correct_is_said_in_one_line(command, body, arguments, parts):
    assert_refused(command(body, *arguments), *parts)


@pytest.mark.parametrize("samples", ["0", "-3"])
def test_no_samples_at_all_are_refused(command, samples):
    assert_refused(command(UNEVEN_INT8, "planted", "--samples", samples), "samples")


def test_the_command_ranks_a_model_that_overflows(command):
    said = command(with_precision(LARGE, "fp16"), "planted", "--precision", "fp16")
    assert said.code == 0
    assert "/Mul_1" in advice(said.out)["precisions"]["fp16"]["exclude"]["torchscript"]


def test_the_command_shows_the_top_nodes_and_counts_the_others(command):
    said = command(UNEVEN_INT8, "planted", "--top", "1")
    assert said.code == 0
    assert "/gather/Conv" in said.out
    assert "/last/Conv" not in said.out
    assert "and 2 more nodes" in said.out


def test_a_mistake_has_the_exit_code_2_in_a_process_of_its_own_too(tmp_path):
    write_case(tmp_path / "cases", UNEVEN_INT8, PYTHON)
    done = conformance(tmp_path, "plantd")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "conformance sensitivity: there is no case 'plantd'; did you mean 'planted'?\n"


def test_dynamo_names_nodes_in_its_own_way_and_the_advice_is_for_dynamo(command):
    body = with_precision(UNEVEN.replace("torchscript: [17]", "torchscript: [17], dynamo: [20]"), "int8")
    said = command(body, "planted", "--exporter", "dynamo")
    assert said.code == 0
    (name, *_) = advice(said.out)["precisions"]["int8"]["exclude"]["dynamo"]
    assert name == "node_conv2d_1"
