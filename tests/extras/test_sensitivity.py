"""Plants one bad node in a network and checks that the sensitivity analysis finds it and gives the right advice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import pytest
from ruamel.yaml import YAML

from conformance.extras.sensitivity.ranking import Ranking, candidates, rank
from conformance.front import cli
from conformance.models.precision import convert
from conformance.results.records.record import Record
from tests.kit import networks
from tests.kit.cases import PASSED, Bench, say, verdict, write_case
from tests.kit.planting import wrapping
from tests.kit.runs import Said
from tests.plants.plant import Planted

PYTHON = (
    networks.PYTHON
    + """
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
class Large(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x * 0.01) + x * x
"""
)

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


def with_precision(body: str, precision: str, says: str = "") -> str:
    return say(body, f"precisions: {{{precision}: {{{says}}}}}")


def fidelity(bench: Bench, body: str) -> Record:
    cell = bench.cell(body, PYTHON, check="fidelity")
    return bench.run_cell(cell, examples=2)


@dataclass
class Conversion:
    """What a fidelity cell converted, and from what."""

    record: Record
    given: convert.ConversionSource
    model: Any
    batches: list[dict[str, Any]]
    steps: list[tuple[int, int, str]] = field(default_factory=list)

    def rank(self) -> Ranking:
        return rank(self.given, self.model, self.batches, [], lambda *step: self.steps.append(step))

    def serialized(self) -> tuple[bytes, bytes]:
        before, after = self.given.model, self.model
        return before.SerializeToString(deterministic=True), after.SerializeToString(deterministic=True)


ConversionOf = Callable[[str], Conversion]


@pytest.fixture(scope="module")
def conversion_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConversionOf]:
    """``conversion_of(body)``: how its only model of another precision is made."""
    folder = tmp_path_factory.mktemp("conversions")
    bench, known = Bench(folder, folder / "store"), dict[str, tuple[Any, ...]]()
    made: list[tuple[Any, Any, Any]] = []

    def seen(original: Any, given: Any, feeds: Any, measured: Any) -> Any:
        model, told = original(given, feeds, measured)
        made.append((given, model, feeds.batches))
        return model, told

    def conversion(body: str) -> Conversion:
        if body not in known:
            record = fidelity(bench, body)
            known[body] = (record, *made[-1])
        return Conversion(*known[body])

    with wrapping(convert, "convert", seen)(Planted()):
        yield conversion


@BOTH
def test_the_planted_node_comes_first_and_wins_back_most_of_what_was_lost(conversion_of, precision):
    body, node = PLANTED[precision]
    made = conversion_of(with_precision(body, precision))
    assert verdict(made.record) == ("failed", "compare", "LowFidelity", "precision")
    before = made.serialized()
    ranking = made.rank()
    first, *others = ranking.nodes
    assert first.node == ranking.exclude()[0] == node
    assert first.gain > 5 and all(one.gain < first.gain / 2 for one in others)
    assert first.sqnr == pytest.approx(ranking.sqnr + first.gain)
    assert [one.gain for one in ranking.nodes] == sorted((one.gain for one in ranking.nodes), reverse=True)
    assert ranking.sqnr == pytest.approx(made.record.fidelity["sqnr"], abs=3)
    names = candidates(made.given, made.model)
    assert len(names) > 2 and sorted(one.node for one in ranking.nodes) == sorted(names)
    assert made.steps == [(done, len(names), name) for done, name in enumerate(names)], "each is announced once"
    assert made.serialized() == before, "both models are as they were"
    assert made.rank() == ranking


def test_the_output_with_most_noise_decides(conversion_of):
    body = with_precision(UNEVEN, "int8")
    exact_first = conversion_of(body.replace("beside.Uneven", "beside.WithItsInput"))
    assert exact_first.rank().sqnr == pytest.approx(conversion_of(body).rank().sqnr, abs=2)


@BOTH
def test_a_node_that_is_put_into_exclude_wins_back_what_the_ranking_promised(conversion_of, precision):
    body, node = PLANTED[precision]
    made = conversion_of(with_precision(body, precision))
    promised = made.rank()
    for one in promised.nodes:
        kept = conversion_of(with_precision(body, precision, f'exclude: ["{one.node}"]'))
        assert kept.given.kept == {one.node}
        kept.batches = made.batches
        again = kept.rank()
        assert again.sqnr == pytest.approx(one.sqnr, abs=1e-6), one.node
        assert one.node not in [other.node for other in again.nodes]
        assert (verdict(kept.record) == PASSED) is (one.node == node)


def advice(printed: str) -> dict[str, Any]:
    """The line to put into the case, parsed."""
    (line,) = (line for line in printed.splitlines() if line.startswith("precisions:"))
    found = YAML(typ="safe", pure=True).load(line)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """``command(body, *arguments)``: the command in this process, in a folder with one case ``planted``."""

    def run(body: str, *arguments: str) -> Said:
        write_case(tmp_path / "cases", body, PYTHON)
        monkeypatch.chdir(tmp_path)
        code = cli.main(["sensitivity", *arguments])
        return Said(code, *capsys.readouterr())

    return run


@BOTH
def test_the_advice_of_the_command_put_into_the_case_makes_it_pass(command, tmp_path, bench, precision):
    body, node = PLANTED[precision]
    said = command(with_precision(body, precision), "planted", "--precision", precision, "--picture", "picture.svg")
    assert said.code == 0 and node in advice(said.out)["precisions"][precision]["exclude"]["torchscript"], said.err
    (line,) = (line for line in said.out.splitlines() if line.startswith("precisions:"))
    assert verdict(fidelity(bench, say(body, line))) == PASSED
    shown = "".join(ElementTree.parse(tmp_path / "picture.svg").getroot().itertext()).replace("\xa0", " ")
    assert node in shown and f"planted, {precision}" in shown


def test_a_node_that_alone_loses_anything_has_the_longest_bar(command):
    said = command(with_precision(SINE, "fp16"), "planted", "--precision", "fp16")
    (line,) = (line for line in said.out.splitlines() if line.startswith("/Sin"))
    assert line.count("█") == 30 and "inf" in line


UNEVEN_INT8 = with_precision(UNEVEN, "int8")
SINE = say('forward: torch.sin(x)\ninputs: {x: "float32[batch, 4]"}', COMMON, "export: {torchscript: [17]}")


@pytest.mark.parametrize("body, arguments, parts", [
    pytest.param(UNEVEN_INT8, ["plantd"], ["there is no case 'plantd'; did you mean 'planted'?"], id="unknown case"),
    pytest.param(UNEVEN, ["planted"], ["planted converts to no precision", "precisions: {int8: {}}"],
                 id="no precisions"),
    pytest.param(with_precision(SINE, "int8"), ["planted"], ["planted at int8: there is nothing to quantize"],
                 id="nothing to quantize"),
    pytest.param(with_precision(UNEVEN, "int8", "exclude: nosuch"), ["planted"], ["no node or operator 'nosuch'"],
                 id="exclude"),
    pytest.param(with_precision(UNEVEN, "int8", "calibration: {data: nosuch.npy}"), ["planted"],
                 ["calibration: there is no cases/nosuch.npy"], id="calibration"),
    pytest.param(UNEVEN_INT8 + "\nneeds: a_package_that_nobody_has", ["planted"], ["is not installed"], id="needs"),
    pytest.param(UNEVEN_INT8, ["planted", "--picture", "nosuch/picture.svg"], ["nosuch/picture.svg"], id="picture"),
])  # fmt: skip
def test_what_the_user_has_to_correct_is_said_in_one_line(command, body, arguments, parts):
    said = command(body, *arguments)
    assert (said.code, said.out) == (2, "")
    (line,) = (line for line in said.err.splitlines() if line.startswith("conformance sensitivity: "))
    assert "Traceback" not in said.err
    assert all(part in line for part in parts)


def test_the_command_ranks_a_model_that_overflows(command):
    said = command(with_precision(LARGE, "fp16"), "planted", "--precision", "fp16")
    assert said.code == 0 and "/Mul_1" in advice(said.out)["precisions"]["fp16"]["exclude"]["torchscript"]


def test_the_command_shows_the_top_nodes_and_counts_the_others(command):
    said = command(UNEVEN_INT8, "planted", "--top", "1")
    assert said.code == 0 and "/gather/Conv" in said.out
    assert "/last/Conv" not in said.out and "and 2 more nodes" in said.out
