"""Calls that no sample has, made as the signature of what is called allows."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from conformance.case.samples import tried
from conformance.case.samples.calls import call_of
from conformance.case.samples.made_calls import OtherCall, made
from conformance.case.samples.told import OfOperator
from conformance.case.samples.vary import draw_inputs


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def calls_of(called: Callable[..., Any], *args: object, **kwargs: object) -> list[str]:
    """Return the calls that are made of one, as a case says them, with the types of their inputs."""
    of = [call_of("f", *call)[0] for call in made(called, [OtherCall(args, kwargs)])]
    return [f"{one['forward']} {' '.join(entry['type'] for entry in one['inputs'].values())}" for one in of]


x = values(2, 3, 4)


@pytest.mark.parametrize(("called", "args", "call"), [
    (functional.scaled_dot_product_attention, (x, x, x), "f(x0, x1, x2, scale=2.0) "),
    (functional.scaled_dot_product_attention, (x, x, x), "f(x0, x1, x2, is_causal=True) "),
    (functional.batch_norm, (x, values(3), values(3).abs()), "f(x0, x1, x2, eps=0.5) "),
    (torch.full_like, (x, 2), "f(x0, 2, dtype=torch.int64) "),
    (torch.roll, (x, 1, 2), "f(x0, [1, 2, ], [2, 1, ]) "),
    (torch.tile, (x, (2, 3)), "f(x0, (3, )) "),
    (torch.broadcast_to, (x, (2, 3, 4)), "f(x0, (2, 2, 3, 4, )) "),
    (functional.avg_pool2d, (x, (2, 2), (1, 1)), "f(x0, (2, 2, )) "),
    (functional.scaled_dot_product_attention, (x, x, x, values(3, 3)), "f(x0, x1, x2, x3) float32[2, 3, 4] "
     "float32[2, 3, 4] float32[2, 3, 4] bool[3, 3]"),
    (functional.pixel_shuffle, (values(1, 4, 2, 2), 2), "f(x0, 2) float32[1, 8, 2, 2]"),
])  # fmt: skip
def test_a_call_that_shows_more_is_made(called: Callable[..., Any], args: Sequence[object], call: str) -> None:
    assert any(one.startswith(call) for one in calls_of(called, *args)), calls_of(called, *args)


def test_what_pytorch_refuses_and_what_shows_nothing_is_not_made() -> None:
    def deaf(given: torch.Tensor, eps: float = 0.0, *, least: float | None = None, inplace: bool = False) -> object:
        if least is not None:
            raise ValueError("none is taken")
        return given * 2

    def heard(given: torch.Tensor, eps: float = 0.0) -> object:
        return given * 2 + eps

    assert calls_of(deaf, x) == []
    assert calls_of(heard, x) == ["f(x0, eps=0.5) float32[2, 3, 4]"]


def test_a_size_that_pytorch_takes_one_more_of_is_not_doubled() -> None:
    """Those vary by ``sizes``."""
    assert [one for one in calls_of(functional.pixel_shuffle, values(1, 9, 2, 2), 3) if "18" in one]
    assert not calls_of(functional.pixel_shuffle, values(1, 9, 2, 2), 1)


def test_calls_of_which_little_is_asked_and_of_high_rank_are_changed_first() -> None:
    calls = [OtherCall((values(4),), {"repeats": 1}), OtherCall((x,), {"repeats": 1})]

    def repeat(given: torch.Tensor, repeats: int, twice: bool = False) -> object:
        return given * (1 + twice)

    ranks = [call.tensors[0].dim() for call in made(repeat, calls) if call.kwargs.get("twice")]
    assert ranks == [3, 1]


def test_each_row_of_a_mask_that_is_made_shows_something() -> None:
    grow = ("signature",)
    attention = tried.told_of("nn.functional.scaled_dot_product_attention", 1, grow)

    inputs = [one.said["inputs"] for one in attention if isinstance(one, OfOperator)]
    [of_mask] = [one for one in inputs if "x3" in one]
    assert of_mask["x3"] == {"type": "bool[3, 6]", "values": {"padding": [0, 1]}}
    [mask] = draw_inputs([torch.ones(3, 6).bool()], {"inputs": {"x3": of_mask["x3"]}}, [(50, 6)], 0)
    assert mask.any(-1).all() and not mask.all() and mask.dtype is torch.bool


def test_what_says_nothing_of_values_is_a_case_of_its_shape_and_dtype() -> None:
    grown = [one for one in tried.told_of("full_like", 1, ("signature",)) if isinstance(one, OfOperator)]

    assert all(one.said["vacuous"] for one in grown)
    assert any("dtype=torch.int64" in one.said["forward"] for one in grown)
    assert not any(isinstance(one, OfOperator) for one in tried.told_of("full_like", 1, ()))


def test_an_operator_that_a_made_call_ends_keeps_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    def told_of(name: str, each: int, grow: Sequence[str]) -> list[OfOperator]:
        if "signature" in grow:
            os.kill(os.getpid(), signal.SIGKILL)
        return [OfOperator(name, 0, {})]

    monkeypatch.setattr(tried, "told_of", told_of)

    assert tried._asked(["one"], 1, ["sizes", "signature"]) == [OfOperator("one", 0, {})]


def test_arguments_of_a_sample_that_is_no_case_are_looked_for_in_others() -> None:
    """Of each call of ``roll`` one sample is empty, and left out."""
    grown = tried.told_of("roll", 2, ("arguments",))

    assert "torch.roll(x0, (1, 2, -1, ), (0, 1, 2, ))" in [
        one.said["forward"] for one in grown if isinstance(one, OfOperator)
    ]
