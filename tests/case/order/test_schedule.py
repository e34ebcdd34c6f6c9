"""The order of a run as plain data: who runs what when, simulated with durations that are known."""

import heapq
import math
import random
import statistics
from collections import Counter, defaultdict

import pytest

from conformance.case.plan.catalogue import plan
from conformance.case.plan.order import Schedule, Work, estimated, in_order, works
from tests.kit.cases import load_case, say


class Ran:
    """A simulated run: when each test ended, and what each worker ran, in order."""

    def __init__(self) -> None:
        self.ends: dict[int, float] = {}
        self.by_worker: dict[int, list[int]] = defaultdict(list)

    @property
    def seconds(self) -> float:
        return max(self.ends.values())


def simulate(given, expected, took, workers, *, as_given=False):
    """Runs tests that take ``took`` where ``expected`` is believed. Each worker knows its next test."""
    schedule = Schedule(given, expected, as_given=as_given)
    events = []
    for worker in range(workers):
        schedule.add(worker)
        events.append((0.0, worker))
    queues, ran = defaultdict(list), Ran()

    def give(worker, ahead, *, of_others):
        while len(queues[worker]) < ahead and (test := schedule.take(worker, of_others=of_others)) is not None:
            queues[worker].append(test)

    for worker in range(workers):
        give(worker, 1, of_others=False)
    while events:
        now, worker = heapq.heappop(events)
        give(worker, 2, of_others=True)
        if not queues[worker]:
            continue
        test = queues[worker].pop(0)
        assert test not in ran.ends, "a test was run twice"
        ran.ends[test] = now + took[test]
        ran.by_worker[worker].append(test)
        heapq.heappush(events, (ran.ends[test], worker))
    assert ran.ends.keys() == {*range(len(given))}
    return ran


def planted(seed, *, cases=120, networks=12):
    """Expressions of 0.2 to 3 s and networks of 10 to 60 s, each with 2 to 5 models of 4 to 12 cells, the first of
    which exports and takes longest."""
    rng = random.Random(seed)
    given, took = [], []
    for case in rng.sample(range(cases + networks), cases + networks):
        seconds = rng.uniform(0.2, 3) if case < cases else rng.uniform(10, 60)
        models = [[3, *[1] * rng.randint(3, 11)] for _ in range(rng.randint(2, 5))]
        unit = seconds / sum(map(sum, models))
        for model, shares in enumerate(models):
            for share in shares:
                given.append(Work(case, case, 10 * case + model, 0.05))
                took.append(unit * share)
    return given, took


def lower_bound(given, took, workers):
    """No order can be faster: all work divided, or the longest model, which is not divided."""
    models = Counter()
    for work, seconds in zip(given, took, strict=True):
        models[work.model] += seconds
    return max(sum(took) / workers, max(models.values()))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [1, 2, 4, 16])
def test_with_durations_of_an_earlier_run_no_worker_is_left_alone(workers, seed):
    given, took = planted(seed)
    assert simulate(given, took, took, workers).seconds <= 1.05 * lower_bound(given, took, workers)


@pytest.mark.parametrize("workers, most", [(2, 1.05), (4, 1.1), (16, 1.25)])
def test_wrong_estimates_cost_little(workers, most):
    times = []
    for seed in range(20):
        given, took = planted(seed)
        rng = random.Random(seed)
        wrong = [seconds * rng.lognormvariate(0, 1) for seconds in took]
        times.append(simulate(given, wrong, took, workers).seconds / lower_bound(given, took, workers))
    assert statistics.mean(times) <= most


def test_one_case_alone_uses_all_workers():
    given = [Work(0, 0, number // 5, 1.0) for number in range(40)]  # 8 models
    ran = simulate(given, [1.0] * 40, [1.0] * 40, 4)
    assert len(ran.by_worker) == 4 and ran.seconds <= 15


def test_a_family_is_run_by_one_worker_unless_it_is_too_long():
    given, took = planted(0)
    owners, seconds = defaultdict(set), Counter()
    for worker, tests in simulate(given, took, took, 2).by_worker.items():
        for test in tests:
            owners[given[test].family].add(worker)
            seconds[given[test].family] += took[test]
    divided = {family for family, who in owners.items() if len(who) > 1}
    assert len(divided) <= 2  # of 132: when everything else is done, the last ones are shared


@pytest.mark.parametrize("workers", [1, 2])
def test_most_cases_are_seen_early(workers):
    given, took = planted(0)
    ran = simulate(given, took, took, workers)
    cases = Counter(work.case for work in given)
    early = Counter(given[test].case for test, end in ran.ends.items() if end <= 0.4 * ran.seconds)
    assert sum(early[case] == cases[case] for case in cases) >= 0.75 * len(cases)


def test_what_is_equally_long_keeps_its_order():
    given = [Work(number // 3, number // 3, number // 3, 1.0) for number in range(30)]
    assert in_order(given, [1.0] * 30) == list(range(30))


def test_an_order_that_others_gave_is_kept():
    """Each worker takes the first family that nobody has."""
    given, took = planted(2)
    starts: dict[int, int] = {}
    for test, work in enumerate(given):
        starts.setdefault(work.family, test)
    ran = simulate(given, took, [1.0] * len(given), 3, as_given=True)
    assert {tests[0] for tests in ran.by_worker.values()} == set(sorted(starts.values())[:3])


BODY = say(
    "module: beside.Scaled", "with: {factor: FACTOR}", 'inputs: {x: "float32[batch, SIZE]"}', "dims: {batch: 1..4}",
    "export: {torchscript: [13, 17], dynamo: [20]}", "latency: [{runtime: onnxruntime, at_most: 1 s}]",
)  # fmt: skip
PYTHON = """
import torch
class Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
    def forward(self, x):
        return self.factor * x
"""


def cells_of(folder, name, *, factor=2, size=3, more=""):
    body = say(BODY.replace("FACTOR", str(factor)).replace("SIZE", str(size)), more)
    return list(plan(load_case(folder, body, PYTHON, name)))


def present(runtime):
    return False


def families(cells):
    return {work.family for work in works(cells, present) if not work.last}


def test_cases_that_build_the_same_module_are_one_family(tmp_path):
    one = cells_of(tmp_path, "one")
    assert len(families(one)) == 1 and len(families([*one, *cells_of(tmp_path, "other_size", size=4)])) == 1
    assert len(families([*one, *cells_of(tmp_path, "other_factor", factor=3)])) == 2
    assert len(families([*one, *cells_of(tmp_path, "other_seed", more="seed: 1")])) == 2
    assert len(families([*one, *cells_of(tmp_path, "other_mode", more="mode: train")])) == 2
    assert len(families([*one, *cells_of(tmp_path / "elsewhere", "elsewhere")])) == 2


def test_models_are_told_apart_and_budgets_are_no_part_of_them(tmp_path):
    cells = cells_of(tmp_path, "one")
    made = works(cells, present)
    assert {work.last for work, cell in zip(made, cells, strict=True) if cell.check == "latency"} == {True}
    models = {(cell.exporter, cell.opset, cell.check == "latency") for cell in cells}
    assert len({work.model for work in made}) == len(models)
    ordered = [cells[index] for index in in_order(made, [work.seconds for work in made])]
    assert [cell.check for cell in ordered][-2:] == ["latency", "latency"]
    rest = [cell for cell in ordered if cell.check != "latency"]
    assert rest == [cell for cell in cells if cell.check != "latency"]  # each model is made just before it is used


def test_larger_inputs_and_modules_are_expected_to_take_longer(tmp_path):
    def total(cells):
        return sum(work.seconds for work in works(cells, present))

    body = BODY.replace("module: beside.Scaled", "forward: factor * x").replace("FACTOR", "2").replace("SIZE", "3")
    expression = list(plan(load_case(tmp_path, body, name="expression")))
    small = cells_of(tmp_path, "small")
    assert total(expression) < total(small) < total(cells_of(tmp_path, "large", size=100_000))


def test_a_case_takes_what_it_usually_takes_whatever_is_selected_of_it(tmp_path):
    cells = [cell for cell in cells_of(tmp_path, "one") if cell.check != "latency"]
    whole = works(cells, present, {"one": 60.0})
    assert sum(work.seconds for work in whole) == pytest.approx(60.0, abs=1.0)
    assert works(cells[:2], present, {"one": 60.0}) == whole[:2]
    assert works(cells, present, {"another": 60.0}) == works(cells, present)


def test_what_this_host_lacks_takes_no_time(tmp_path):
    cells = cells_of(tmp_path, "one")
    made = works(cells, lambda runtime: runtime == "onnxruntime")
    skipped = [work.seconds for work, cell in zip(made, cells, strict=True) if cell.runtime == "onnxruntime"]
    others = [work.seconds for work, cell in zip(made, cells, strict=True) if cell.runtime != "onnxruntime"]
    assert max(skipped) < min(others)


def test_sizes_that_no_dims_allow_do_not_end_the_run(tmp_path):
    body = 'forward: x\ninputs: {x: "float32[n]"}\ndims: {n: 1..4}\nwhere: n > 9\nexport: {torchscript: [17]}'
    assert works(plan(load_case(tmp_path, body)), present)


def test_durations_go_before_what_was_expected():
    given = [Work(0, 0, 0, 1.0), Work(0, 0, 0, 3.0), Work(1, 1, 1, 1.0), Work(2, 2, 2, 1.0)]
    ids = ["a", "b", "c", "d"]
    assert estimated(given, ids, {}) == [1.0, 3.0, 1.0, 1.0]
    seconds = estimated(given, ids, {"a": 2.0, "c": 4.0, "gone": 1e9})
    assert seconds[0] == pytest.approx(2, abs=0.1)
    assert seconds[1] == pytest.approx(6, abs=0.1)  # as the cell of the same case
    assert seconds[2] == pytest.approx(4, abs=0.1)
    assert seconds[3] == pytest.approx(3, abs=0.1)  # as all


def test_an_earlier_run_in_which_nothing_took_time():
    given = [Work(0, 0, 0, 1.0), Work(0, 0, 0, 3.0)]
    seconds = estimated(given, ["a", "b"], {"a": 0.0})
    assert all(math.isfinite(value) and value > 0 for value in seconds)
