"""--random draws anew at every shape, whatever profile Hypothesis loads; what fails is kept and shown again."""

import shlex
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from conformance.case.draw.draw import Draw
from conformance.case.draw.shapes import boundary_sizes, drawn_shapes, trace_sizes
from conformance.case.files.dims import Dims, Range
from conformance.case.plan.catalogue import plan
from conformance.case.plan.settings import Settings
from conformance.judge.draws import Draws
from conformance.models.prepared import Prepared
from tests.kit.cases import QUICK, load_case, say, write_case
from tests.kit.modules import net_of
from tests.kit.runs import AS_RUN, Outcome, run_pytest, run_suite

BODY = 'forward: torch.sin(x)\ninputs: {x: "float32[n]"}\ndims: {n: 1..9}\n'
RAISES = say("module: beside.Net", 'inputs: {x: "float32[n]"}', "dims: {n: 1..9}", QUICK)
RAISING = net_of("torch.sin(x)", "if x.shape[0] == 9:", "    raise ValueError('planted')")


def draws_of(folder: Path, seed: int | None) -> tuple[list[Draw], int]:
    """All draws of a cell with a run's seed, and how many of them are at boundary shapes."""
    case = load_case(folder, BODY)
    (cell,) = (cell for cell in plan(case) if cell.id.startswith("accuracy[planted-dynamo-op20-onnxruntime"))
    traced = trace_sizes(case.dims, {})
    prepared = Prepared(case, reference=None, maker=None)  # type: ignore[arg-type]
    draws = Draws(cell, Settings(store=folder, examples=3, random=seed), prepared, case.dims, traced)
    return list(draws), len(boundary_sizes(case.dims, traced)) * case.says.examples.values


def test_the_seed_of_a_run_changes_the_seed_of_every_draw(tmp_path):
    same, again, one, other = (draws_of(tmp_path, seed) for seed in (None, None, 1, 2))
    assert same == again
    assert one == draws_of(tmp_path, 1)
    boundary = same[1]
    assert boundary > 10
    for a, b in ((same, one), (one, other)):
        assert [draw.dims for draw in a[0][:boundary]] == [draw.dims for draw in b[0][:boundary]]
        assert not {draw.seed for draw in a[0]} & {draw.seed for draw in b[0]}


@pytest.mark.parametrize("derandomize", [False, True])
def test_drawn_shapes_follow_their_seed_in_every_profile(derandomize):
    dims = Dims.build({"n": Range.parse("1..4096")})
    before = hypothesis.settings.get_current_profile_name()
    expected = [drawn_shapes(dims, 8, seed) for seed in (1, 2)]
    hypothesis.settings.register_profile("planted", derandomize=derandomize, database=None)
    hypothesis.settings.load_profile("planted")
    try:
        found = [drawn_shapes(dims, 8, seed) for seed in (1, 2)]
    finally:
        hypothesis.settings.load_profile(before)
    assert found == expected and [sizes for sizes, _ in found[0]] != [sizes for sizes, _ in found[1]]


def wrong(outcome: Outcome) -> dict[str, Any]:
    (record,) = (record for record in outcome.records.values() if record["check"] == "accuracy")
    assert (record["status"], record["error"]) == ("failed", "ValueError")
    return record


def test_a_failing_draw_at_a_boundary_shape_is_shown_again_by_the_command_that_is_printed(tmp_path):
    write_case(tmp_path / "cases", RAISES, RAISING)
    found = run_suite(tmp_path, "-k", "test_accuracy", "--random", "--store", "kept here")
    command = wrong(found)["command"]
    assert command in found.text
    program, run, *words = shlex.split(command)
    assert (program, run) == ("conformance", "run")
    seed = wrong(found)["draw"]["seed"]
    assert wrong(run_pytest(tmp_path, *AS_RUN, *words))["draw"]["seed"] == seed
    for options in ([], ["--random"]):
        elsewhere = run_suite(tmp_path, "-k", "test_accuracy", "--store", "elsewhere", *options, CI="true")
        assert wrong(elsewhere)["draw"]["seed"] != seed
