"""How far cases reach is counted by proof: a declaration that computes something else, or nothing, does not count."""

import pytest
import torch

from conformance.case.samples.calls import call_of
from evidence.reach import held
from evidence.reach.cases import outcome_of
from evidence.reach.proof import Unproved, prove
from evidence.reach.samples import Sample

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def sample(path, operator, *args, **kwargs):
    return Sample(lambda: call_of(path, args, kwargs), (args, kwargs), operator)


@pytest.mark.parametrize(("forward", "kind"), [
    ("torch.sin(x0)", None), ("torch.cos(x0)", "another answer"), ("torch.sin(x0)[:2]", "another answer"),
    ("torch.sin(x0).double()", "another answer"), ("torch.rand_like(x0)", "random"),
    ("torch.nothing(x0)", "AttributeError"), ("torch.sin(x0", "SyntaxError"),
])  # fmt: skip
def test_what_a_case_computes_has_to_be_what_the_call_computes(tmp_path, forward, kind):
    said = {"forward": forward, "inputs": {"x0": "float32[3, 4]"}}
    found = None
    try:
        prove(tmp_path, said, lambda tensors: torch.sin(*tensors))
    except Unproved as why:
        found = why.kind
    assert found == kind


@pytest.mark.parametrize(("given", "verdict"), [
    (sample("torch.sin", torch.sin, X), "as is"), (sample("torch.full", torch.full, (2, 3), 0.5), "as is"),
    (sample("torch.Tensor.add_", torch.Tensor.add_, X, X), "as is"),
    (sample("torch.linalg.cholesky", torch.linalg.cholesky, torch.eye(3)), "wrapper"),
    (sample("torch.bernoulli", torch.bernoulli, X.abs()), "not at all"),
    (sample("torch.complex", torch.complex, X, X), "refused"), (sample("torch.cos", torch.sin, X), "wrapper"),
])  # fmt: skip
def test_what_becomes_of_a_sample(tmp_path, given, verdict):
    (tmp_path / "beside.py").write_text(held.PYTHON, encoding="utf-8")
    assert outcome_of(tmp_path, "planted", given).verdict == verdict
