"""How far roundings reach, which decides whether PyTorch's float32 is wrong, by an earlier run."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.compare.tolerance import Comparison
from conformance.judge.wrong_reference import held_against_float64
from conformance.models.kept.answers import KeptAnswers


class Asked:
    """A verifier of a module of one output, which tells how often it was asked how far that moves."""

    def __init__(self, folder: Any, moved: float) -> None:
        self.kept, self.rules, self.times = KeptAnswers(folder, "answers"), {"kernels"}, 0
        self.reference = SimpleNamespace(half=None, who="PyTorch", oracle=lambda *asked: None)
        self._moved = moved

    def outputs(self) -> list[Any]:
        return []

    def compare(self, got: Any, right: Any) -> Comparison:
        return Comparison("verified")

    def open_values(self, inputs: Any, wanted: Any) -> tuple[list[Any], set[str]]:
        return [], set()

    def conditioning(self, inputs: Any, wanted: Any, exact: Any) -> list[Any]:
        self.times += 1
        return [np.full(2, self._moved)]


def held(verify: Any, value: float = 0.5) -> str | None:
    """The error that is found where PyTorch gives 0 for 1."""
    example: Any = SimpleNamespace(
        inputs={"x": np.array([value], "float32")}, exact=[np.array([1.0, 0.0])], wanted=[np.zeros(2, "float32")]
    )
    found = held_against_float64(verify, example, [np.array([1, 0], "float32")])
    verify.kept.write([])
    return None if found is None else found.error


@pytest.mark.parametrize("moved, error", [(1.0, None), (1e-3, "WrongReference"), (np.inf, None)])
def test_a_later_run_asks_nothing_and_says_the_same(tmp_path, moved, error):
    first = Asked(tmp_path, moved)
    assert held(first) == error and first.times == 1
    second = Asked(tmp_path, -1.0)
    assert held(second) == error and second.times == 0 and not second.rules
    assert held(second, 0.25) == "WrongReference" and second.times == 1


def test_what_is_not_believed_is_asked_again(tmp_path):
    held(Asked(tmp_path, 1.0))
    again = Asked(tmp_path, 1.0)
    again.kept.forget()
    assert held(again) is None and again.times == 1
