"""A graph that draws the random numbers that PyTorch draws by a seed of its own accuses nobody; one that draws where
PyTorch does not is wrong."""

import pytest

from tests.kit.cases import say, verdict

X = say('inputs: {x: "float32[n, 3]"}', "dims: {n: 1..4}")
NETS = """
import torch
def seeded(x):
    torch.manual_seed(0)
    return {drawn}
def noisy(g, x):
    return g.op("Add", g.op("Relu", x), g.op("RandomNormalLike", x))
def twice(g, x):
    return g.op("Add", g.op("Relu", x), x)
"""
SEEDED = say("forward: beside.seeded(x)", "export: {torchscript: [17]}", X)


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
@pytest.mark.parametrize("drawn", [
    "x + torch.rand_like(x)", "x + torch.rand_like(x).round()",
    "torch.nn.functional.dropout(x + 1, 0.5, training=True)",
])  # fmt: skip
def test_what_a_graph_draws_as_pytorch_does_is_the_cases_to_declare(bench, drawn, runtime):
    record = bench.run(SEEDED, NETS.format(drawn=drawn), runtime=runtime)
    assert verdict(record) == ("failed", "declare", "NotDeterministic", "case")
    assert "no two runs have to agree" in record.reason and not record.explained


def test_an_output_that_depends_on_no_such_number_is_still_compared(bench):
    """Its exporter is wrong, whatever another output draws."""
    body = say("forward: beside.seeded(x)", "outputs: [{name: noise, random: of a test}, relu]", X,
               'export: {torchscript: {opsets: [17], symbolics: {"aten::relu": beside.twice}}}')  # fmt: skip
    record = bench.run(body, NETS.format(drawn="torch.rand_like(x), torch.relu(x)"))
    assert verdict(record)[:3] == ("failed", "compare", "WrongValue"), record.reason


def test_a_graph_that_draws_where_pytorch_does_not_is_wrong(bench):
    body = say("forward: torch.relu(x)", X,
               'export: {torchscript: {opsets: [17], symbolics: {"aten::relu": beside.noisy}}}')  # fmt: skip
    record = bench.run(body, NETS.format(drawn="x"))
    assert verdict(record) == ("failed", "compare", "NotRepeatable", "exporter"), record.reason
    assert "the model has RandomNormalLike, which the module does not have" in str(record.reason)
    assert record.own_code and not record.explained  # whose code that is
