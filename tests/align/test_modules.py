"""What each call of a submodule is seen to return."""

from __future__ import annotations

import numpy as np

from conformance.align.modules import calls_of, paired
from tests.align.support import sub_calls


def test_work_in_place_does_not_change_what_was_seen_before():
    import torch
    from torch import nn

    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    linear, relu, whole = calls_of(lambda: module(torch.linspace(-1, 1, 6).reshape(2, 3)))
    assert (linear.outputs[0] < 0).any()
    np.testing.assert_array_equal(relu.outputs[0], np.maximum(linear.outputs[0], 0))
    assert linear.keys != relu.keys == whole.keys


def test_a_call_that_raises_and_is_caught_does_not_count():
    import torch
    from torch import nn

    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = nn.Linear(9, 9), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.bad(x)
            except RuntimeError:
                return self.good(x)

    calls = calls_of(lambda: Careful()(torch.zeros(1, 3)))
    assert [(one.path, one.chain) for one in calls] == [("good", ("", "good")), ("", ("",))]


def test_modules_that_are_made_on_the_way_do_not_count_and_hooks_are_removed():
    import torch
    from torch import nn

    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.ReLU()(x)

    seen = calls_of(lambda: Makes()(torch.zeros(1)))
    assert [one.path for one in seen] == [""]
    Makes()(torch.zeros(1))
    assert len(seen) == 1


def test_another_way_through_the_submodules_is_no_pair():
    once, twice = sub_calls(1), sub_calls(2)
    assert paired(once, twice) is None
    assert [len(one) for one in paired(once, once) or []] == [1, 1]
