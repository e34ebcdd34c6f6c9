"""``weights: awake``: weights that hardly show in the outputs of a fresh module get a scale, the others stay."""

from functools import partial
from typing import Any

import pytest
import torch

from conformance.models.reference.awake import awaken


def woken(build: Any, shape: tuple[int, ...] = (4, 8), seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of a module before and after it was woken."""
    torch.manual_seed(0)
    module = build(torch.nn).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(number)) for number in range(4)]
    awaken(module, seed, lambda called: [partial(called, x) for x in inputs])
    return before, module.state_dict()


def sized(tensor: Any) -> float:
    return float(tensor.square().mean().sqrt())


def linear_of(std: float) -> Any:
    def build(nn: Any) -> Any:
        module = nn.Linear(64, 64)
        nn.init.normal_(module.weight, std=std) if std else nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)
        return module

    return build


@pytest.mark.parametrize("std", [0.0, 1e-6, 0.02])
def test_projections_that_are_zero_or_drawn_too_small_keep_the_scale_of_what_they_get(std):
    before, after = woken(linear_of(std), (4, 64))
    assert not std or bool((before["weight"].sign() == after["weight"].sign()).all())
    assert 0.9 * (2 / 64) ** 0.5 < sized(after["weight"]) < 1.1 * (2 / 64) ** 0.5 and sized(after["bias"]) > 0.1


@pytest.mark.parametrize("value", [0.0, 1e-6, 1.0])
def test_a_scale_that_is_constant_gets_values_that_differ(value):
    def build(nn: Any) -> Any:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.gamma = nn.Parameter(torch.full((8,), value))

            def forward(self, x: Any) -> Any:
                return x * self.gamma

        return Net()

    _, after = woken(build)
    assert 0.5 <= float(after["gamma"].min()) < float(after["gamma"].max()) <= 1.5


def test_what_shows_stays_as_it_is():
    def build(nn: Any) -> Any:
        module = nn.Linear(8, 8)
        nn.init.normal_(module.weight)
        nn.init.normal_(module.bias)
        return module

    before, after = woken(build)
    assert all(bool((before[name] == after[name]).all()) for name in before)


def test_fresh_batch_norms_have_the_statistics_of_the_inputs_and_are_in_their_mode():
    def build(nn: Any) -> Any:
        module = nn.Sequential(nn.BatchNorm1d(8), nn.BatchNorm1d(8, momentum=0.3))
        nn.init.constant_(module[1].running_mean, 2.0)  # not fresh
        return module

    before, after = woken(build, (256, 8))
    assert 0.0 < sized(after["0.running_mean"]) < 0.2 and 0.8 < sized(after["0.running_var"]) < 1.2
    assert int(after["0.num_batches_tracked"]) == 0
    assert bool((before["1.running_mean"] == after["1.running_mean"]).all())


def test_batch_norms_of_a_module_that_cannot_be_called_with_statistics_are_not_fresh_either():
    _, after = woken(lambda nn: nn.BatchNorm1d(8), (1, 8))  # a single value for each channel
    assert sized(after["running_mean"]) > 0.05 and float(after["running_var"].min()) >= 0.5


def test_the_same_seed_gives_the_same_weights_and_another_one_others():
    first, again, other = (woken(linear_of(0.0), (4, 64), seed)[1]["weight"] for seed in (0, 0, 1))
    assert bool((first == again).all()) and not bool((first == other).all())
