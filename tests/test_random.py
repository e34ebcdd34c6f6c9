"""--random draws anew at every shape, whatever profile Hypothesis loads; what fails is kept and shown again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from conformance.case.dims import Dims, Range
from conformance.checks.draws import Draws
from conformance.checks.prepared import Prepared
from conformance.draw.draw import Draw
from conformance.draw.shapes import boundary_sizes, drawn_shapes, trace_sizes
from conformance.plan.catalogue import plan
from conformance.plan.settings import Settings
from tests.support import Outcome, load_case, run_pytest, run_suite

BODY = 'forward: torch.sin(x)\ninputs: {x: "float32[n]"}\ndims: {n: 1..9}\n'
NOTED = """
noted:
  about: notes where each draw's values come from
  forward: torch.sin(x)
  inputs: {x: {type: "float32[n]", values: hooks.noted}}
  dims: {n: 1..9}
  export: {dynamo: [20]}
  runtimes: onnxruntime
  specials: false
  examples: {shapes: 2, values: 2}
"""
HOOKS = """
def noted(shape, dims, rng):
    values = rng.standard_normal(shape).astype("float32")
    with open("noted.txt", "a") as stream:
        stream.write(f"{shape[0]} {values[0]}\\n")
    return values
"""
WRONG = """
wrong:
  about: wrong wherever it is run
  forward: torch.sin(x)
  inputs: {x: "float32[4]"}
  export: {torchscript: {opsets: [17], symbolics: {"aten::sin": {function: hooks.sine, without: another graph}}}}
  runtimes: onnxruntime
  specials: false
  examples: {shapes: 2}
"""
SINE = """
def sine(g, x):
    return g.op("Cos", x)
"""


def draws_of(folder: Path, seed: int | None) -> tuple[list[Draw], int]:
    """All draws of a cell with a run's seed, and how many of them are at boundary shapes."""
    case = load_case(folder, BODY)
    (cell,) = (cell for cell in plan(case) if cell.id.startswith("accuracy[planted-dynamo-op20-onnxruntime"))
    traced = trace_sizes(case.dims, {})
    prepared = Prepared(case, reference=None, maker=None)  # type: ignore[arg-type]
    draws = Draws(cell, Settings(store=folder, examples=3, random=seed), prepared, case.dims, traced)
    return list(draws), len(boundary_sizes(case.dims, traced)) * case.says.examples.values


def test_the_seed_of_a_run_changes_the_seed_of_every_draw(tmp_path: Path) -> None:
    same, again, one, other = (draws_of(tmp_path, seed) for seed in (None, None, 1, 2))
    assert same == again
    assert one == draws_of(tmp_path, 1)
    boundary = same[1]
    assert boundary > 10
    for a, b in ((same, one), (one, other)):
        assert [draw.dims for draw in a[0][:boundary]] == [draw.dims for draw in b[0][:boundary]]
        assert not {draw.seed for draw in a[0]} & {draw.seed for draw in b[0]}


@pytest.mark.parametrize("derandomize", [False, True])
def test_drawn_shapes_follow_their_seed_in_every_profile(derandomize: bool) -> None:
    import hypothesis

    dims = Dims.build({"n": Range.parse("1..4096")})
    before = hypothesis.settings.get_current_profile_name()
    expected = [drawn_shapes(dims, 8, seed) for seed in (1, 2)]
    hypothesis.settings.register_profile("planted", derandomize=derandomize, database=None)
    hypothesis.settings.load_profile("planted")
    try:
        found = [drawn_shapes(dims, 8, seed) for seed in (1, 2)]
    finally:
        hypothesis.settings.load_profile(before)
    assert found == expected
    assert [sizes for sizes, _ in found[0]] != [sizes for sizes, _ in found[1]]


def noted(folder: Path, *arguments: str, **environment: str) -> list[str]:
    """What the draws of a run noted."""
    (folder / "cases").mkdir(parents=True)
    (folder / "cases/noted.yaml").write_text(NOTED, encoding="utf-8")
    (folder / "cases/hooks.py").write_text(HOOKS, encoding="utf-8")
    outcome = run_suite(folder, "-k", "test_accuracy", *arguments, **environment)
    assert outcome.code == 0, outcome.text
    return (folder / "noted.txt").read_text(encoding="utf-8").splitlines()


def test_two_random_runs_draw_other_values_at_the_same_boundary_shapes_also_on_ci(tmp_path: Path) -> None:
    one, other = (noted(tmp_path / name, "--random", CI="true") for name in ("one", "other"))
    assert len(one) == len(other) > 10
    assert one[0] == other[0]  # of the values that the model is exported with, which stay
    new = [line.split()[0] for line in set(one) - set(other)]
    assert {"1", "9"} <= {*new}, "the ends of the dim, where only boundary shapes are sure to be"
    assert new.count("9") >= 2  # a drawn shape may be one of the ends too


def wrong(outcome: Outcome) -> dict[str, Any]:
    (record,) = (record for record in outcome.records.values() if record["check"] == "accuracy")
    assert (record["status"], record["error"]) == ("failed", "WrongValue")
    return record


def test_a_failing_draw_at_a_boundary_shape_is_shown_again_by_the_command_that_is_printed(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases/wrong.yaml").write_text(WRONG, encoding="utf-8")
    (tmp_path / "cases/hooks.py").write_text(SINE, encoding="utf-8")
    found = run_suite(tmp_path, "-k", "test_accuracy", "--random", "--store", "kept here")
    command = wrong(found)["command"]
    assert command in found.text
    program, *words = shlex.split(command)
    assert program == "pytest"
    seed = wrong(found)["draw"]["seed"]
    assert wrong(run_pytest(tmp_path, *words))["draw"]["seed"] == seed
    elsewhere = run_suite(tmp_path, "-k", "test_accuracy", "--store", "elsewhere")
    assert wrong(elsewhere)["draw"]["seed"] != seed
