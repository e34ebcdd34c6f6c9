"""The benchmark of planted defects: its mutants are valid and are other models, and what survives is told."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from benchmarks.common import HEAD
from benchmarks.mutants import page
from benchmarks.mutants.named import NOBODY, Named, named
from benchmarks.mutants.page import rows_of, rows_of_nodes
from benchmarks.mutants.run import Mutant, Study, add_model
from benchmarks.mutants.tools import TOOLS
from conformance.mutants.kinds import KINDS, View, choose, mutated, tensors
from conformance.mutants.probe import Judged, Made
from conformance.mutants.study import hasty_worker
from conformance.records.record import Record
from conformance.worker.isolation import Worker
from tests.support import Bench

ROOT = Path(__file__).parent.parent
X = np.random.default_rng(0).standard_normal((3, 2, 5, 4), dtype=np.float32)


def small_model() -> onnx.ModelProto:
    """A convolution, a difference, a softmax and a flattening by a computed shape: every kind has a place here."""
    nodes = [
        helper.make_node("Conv", ["x", "weight"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Sub", ["c", "r"], ["d"]),
        helper.make_node("Softmax", ["d"], ["s"], axis=1),
        helper.make_node("Shape", ["s"], ["all"]),
        helper.make_node("Slice", ["all", "zero", "one"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["s", "shape"], ["y"]),
    ]
    weight = np.random.default_rng(1).standard_normal((2, 2, 3, 3), dtype=np.float32)
    integers = {"zero": [0], "one": [1], "rest": [-1]}
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", None])],
        [
            numpy_helper.from_array(weight, "weight"),
            *(numpy_helper.from_array(np.array(values), name) for name, values in integers.items()),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def open_session(data: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])


def view_of(model: onnx.ModelProto) -> View:
    def traced(names: Sequence[str]) -> list[np.ndarray]:
        shown = onnx.ModelProto()
        shown.CopyFrom(model)
        del shown.graph.output[:]
        shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return open_session(shown.SerializeToString()).run(None, {"x": X})

    return View(model, traced)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_makes_valid_models_with_one_change(kind: str) -> None:
    sound = small_model()
    before = [one.SerializeToString() for one in sound.graph.node]
    sites = list(KINDS[kind](view_of(sound)))
    found = [
        onnx.load_from_string(data) for site in sites if (data := mutated(sound, site, open_session)) is not None
    ]
    assert found, "no site gave a model that loads"
    for model in found:
        onnx.checker.check_model(model, full_check=True)
        nodes = [one.SerializeToString() for one in model.graph.node]
        constants = tensors(model)
        changed = sum(a != b for a, b in zip(before, nodes, strict=True))
        changed += sum(constants[name].raw_data != one.raw_data for name, one in tensors(sound).items())
        assert changed == 1
    assert len({model.SerializeToString() for model in found}) == len(found), "two sites are the same change"
    assert before == [one.SerializeToString() for one in sound.graph.node], "the sound model was changed"


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("size baked in", "attribute left out", "integer off by one")]
)
def test_most_kinds_change_what_the_model_computes(kind: str) -> None:
    sound = small_model()
    (wanted,) = open_session(sound.SerializeToString()).run(None, {"x": X})
    models = [
        data for site in KINDS[kind](view_of(sound)) if (data := mutated(sound, site, open_session)) is not None
    ]
    different = []
    for data in models:
        with contextlib.suppress(Fail, InvalidArgument):  # one that loads, and stops at this input
            (got,) = open_session(data).run(None, {"x": X})
            different += [data] if not np.array_equal(got, wanted) else []
    assert different


def test_a_baked_size_is_right_at_the_traced_shape_only() -> None:
    sound = small_model()
    (site,) = (site for site in KINDS["size baked in"](view_of(sound)) if site.node.startswith("Reshape"))
    assert site.what == "input 1 is always [3, -1]"
    data = mutated(sound, site, open_session)
    assert data is not None
    mutant, right = open_session(data), open_session(sound.SerializeToString())
    np.testing.assert_array_equal(mutant.run(None, {"x": X})[0], right.run(None, {"x": X})[0])
    twice = {"x": np.concatenate([X, X])}
    assert right.run(None, twice)[0].shape == (6, 40)
    assert mutant.run(None, twice)[0].shape == (3, 80)


def test_kinds_take_turns_and_a_seed_decides() -> None:
    def drawn(seed: int, count: int) -> list[tuple[str, str, str]]:
        return [
            (kind, site.node, site.what)
            for kind, site, _ in choose(view_of(small_model()), seed, count, open_session)
        ]

    first = drawn(1, len(KINDS))
    assert sorted(kind for kind, *_ in first) == sorted(KINDS)
    assert drawn(1, len(KINDS)) == first
    assert drawn(2, len(KINDS)) != first


def test_what_does_not_load_is_no_mutant() -> None:
    def refuses(data: bytes) -> None:
        raise RuntimeError("no kernel")

    assert list(choose(view_of(small_model()), 0, 3, refuses)) == []


FLATTENED = """
forward: torch.flatten(x * 2, 1, 2)
inputs: {x: "float32[batch, 3, 4, 5]"}
dims: {batch: 1..9}
runtimes: onnxruntime
specials: false
export: {torchscript: [17]}
examples: {shapes: 0, values: 2, boundary: 1}
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with hasty_worker() as found:
        yield found


def mutants_of(bench: Bench, worker: Worker, body: str) -> Study:
    found = Study()
    cells = [one for one in bench.cells(body) if one.check == "accuracy"]
    add_model(found, worker, bench.folder / "mutants", cells, 12)
    return found


def test_a_survivor_of_too_few_draws_is_told_from_one_within_tolerance(bench: Bench, worker: Worker) -> None:
    """A case that runs only the traced shape cannot see a size that is baked in."""
    found = mutants_of(bench, worker, FLATTENED)
    assert "size baked in" in {one.made.kind for one in found.missed}
    assert all(one.tools["assert_allclose"] is False for one in found.missed)
    caught = {one.made.kind: one.record for one in found.defects if one.record is not None}
    assert "weights changed" in caught
    assert {record.fault for record in caught.values()} == {"exporter"}
    (*_, last) = rows_of(found)
    assert last.met is False and last.measured == str(len(found.missed))


def test_a_survivor_within_what_a_case_allows_is_no_weakness_of_the_draws(bench: Bench, worker: Worker) -> None:
    loose = "tolerance: {fp32: {rtol: 0.1, atol: 0.5, because: a test}}"
    found = mutants_of(bench, worker, f"{FLATTENED}{loose}\n")
    scaled = [one for one in found.tolerated if one.made.what == "is scaled by 1.01"]
    assert scaled
    assert all(0 < one.judged.largest < 1 for one in scaled if one.judged is not None)
    assert all(one.tools["assert_allclose"] for one in scaled), "the plain tolerance sees one percent"


def test_a_model_that_does_not_pass_has_no_mutants(bench: Bench, worker: Worker) -> None:
    one_draw = FLATTENED.replace("values: 2", "values: 1")
    found = mutants_of(bench, worker, one_draw)
    assert not found.models and not found.mutants, "one draw is vacuous, so the cell fails"


# ---- which node is named ---------------------------------------------------------------------------------


def place(folder: Path, label: str, operator: dict[str, Any] | None, parts_at: dict[str, str] | None = None) -> Named:
    """Where the node of a record stands for a change of the small model at ``label``."""
    model = small_model()
    for node in model.graph.node:
        node.name = f"n_{node.output[0]}"
    (folder / "models" / "key").mkdir(parents=True)
    onnx.save(model, folder / "models" / "key" / "model.onnx")
    return named(None, Made("weights changed", label, "", folder / "models"), operator, parts_at)


@pytest.mark.parametrize("node, where", [
    ("n_d", "changed"), ("n_c", "neighbour"), ("n_s", "neighbour"), ("n_all", "elsewhere"), ("n_nowhere", "open"),
])  # fmt: skip
def test_a_named_node_is_the_changed_one_next_to_it_or_elsewhere(tmp_path: Path, node: str, where: str) -> None:
    assert place(tmp_path, "Sub d", {"node": node}).place == where


def test_the_changed_node_may_be_among_those_that_are_told(tmp_path: Path) -> None:
    assert place(tmp_path, "Sub d", {"node": "n_all", "among": ["Sub n_d", "And n_all"]}) == Named(
        "among", place(tmp_path / "again", "Sub d", {"node": "n_all"}).node, 2
    )


def test_of_a_constant_those_that_read_it_are_the_changed_ones(tmp_path: Path) -> None:
    assert place(tmp_path / "a", "constant weight", {"tensor": "c"}).place == "changed"
    assert place(tmp_path / "b", "constant weight", {"node": "n_d"}).place == "neighbour"
    assert place(tmp_path / "c", "constant weight", None, {"node": "n_y"}).place == "elsewhere"


def test_without_a_node_it_is_said_why(tmp_path: Path) -> None:
    assert place(tmp_path, "Sub d", {"unable": "vanished"}) == Named("open", "vanished")


def test_open_ones_count_as_not_named() -> None:
    found = Study()
    told = [Named("changed"), Named("neighbour", told=3), Named("among", told=5), NOBODY]
    found.mutants = [
        dataclasses.replace(mutant("node bypassed", differs=True, found=True, tools={}), named=one) for one in told
    ]
    found.mutants.append(mutant("node bypassed", differs=True, found=False, tools={}))
    share, among = rows_of_nodes(found)
    assert (share.measured, share.compared_with) == ("50.0%", "2 of 4; another node 1, none 1")
    assert share.met is False
    assert among.measured == "75.0%"
    assert among.compared_with == "3 of 4; 3 nodes are told in the median, at most 5"


def test_the_page_says_which_nodes_were_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "mutants.md")
    found, told = Study(), [Named("changed", "Relu a"), Named("elsewhere", "Sub b"), Named("open", "vanished")]
    found.mutants = [
        dataclasses.replace(mutant("node bypassed", differs=True, found=True, tools={}), named=one) for one in told
    ]
    page.write(found, "on a host")
    text = (tmp_path / "mutants.md").read_text(encoding="utf-8")
    assert "| the changed node is named, or one next to it | 33.3% | 1 of 3; another node 1, none 1 |" in text
    assert "- `a`: Relu y, is bypassed. Named: Sub b\n" in text
    assert "- `a`: Relu y, is bypassed. None is named: vanished\n" in text and "Relu a" not in text


def test_the_node_of_a_mutant_is_found_as_if_the_exporter_had_made_it(bench: Bench, worker: Worker) -> None:
    found = mutants_of(bench, worker, FLATTENED)
    caught = [one for one in found.defects if one.found]
    assert caught and {one.named.place for one in caught} <= {"changed", "neighbour"}


def mutant(kind: str, *, differs: bool, found: bool, tools: dict[str, bool]) -> Mutant:
    made = Made(kind, "Relu y", "is bypassed", Path("nowhere"))
    record = None
    if found:
        record = Record("accuracy[a]", "a", "dynamo", 20, "onnxruntime", "fp32", "accuracy", {}, fault="exporter")
    return Mutant("a", made, differs, record, tools, None if found else Judged(10, 0, 0, 0.5, ""))


def test_what_nothing_tells_apart_is_not_counted() -> None:
    found = Study()
    found.mutants = [
        mutant("node bypassed", differs=True, found=True, tools={"Polygraphy": True}),
        mutant("node bypassed", differs=True, found=False, tools={"Polygraphy": False}),
        mutant("node bypassed", differs=False, found=False, tools={"Polygraphy": True}),
        mutant("node bypassed", differs=False, found=False, tools={"Polygraphy": False}),
    ]
    by_kind = {row.what: row for row in rows_of(found)}
    assert by_kind["node bypassed"].measured == "1 of 2"
    assert by_kind["node bypassed"].compared_with.startswith("Polygraphy 1 of 2, assert_onnx_program 0 of 0")
    assert by_kind["all"].measured == "1 of 2"
    assert by_kind["weights changed"].measured == "0 of 0"


def test_quick_mode_prints_a_whole_table_and_writes_nothing() -> None:
    written = ROOT / "docs" / "mutants.md"
    before = written.read_bytes()
    command = [sys.executable, "-m", "benchmarks", "--quick", "mutants"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    head, rule, *lines = run.stdout.splitlines()
    assert f"{head}\n{rule}" == HEAD
    everything = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    table = everything[: len(KINDS) + 1]
    assert [row[0] for row in table] == [*KINDS, "all"]
    assert [row[0] for row in everything[len(table) :]] == [
        "defects that its own comparison would refuse, and its draws do not show",
        "the changed node is named, or one next to it",
        "or it is among those that the record says may be wrong too", "seconds added to a failing cell",
    ]  # fmt: skip
    counts = [re.fullmatch(r"(\d+) of (\d+)", row[1]) for row in table]
    assert all(counts)
    found, asked = zip(*((int(one[1]), int(one[2])) for one in counts if one), strict=True)
    assert sum(found[:-1]) == found[-1] and sum(asked[:-1]) == asked[-1]
    assert asked[-1] >= 5
    (share,) = (row for row in everything if row[0].startswith("the changed node"))
    assert (share[2].startswith(f"{found[-1]} of {found[-1]};"), share[-1]) == (True, "met")  # models of one node
    for row in table:
        assert [part.rsplit(" ", 3)[0] for part in row[2].split(", ")] == [*TOOLS]
    assert written.read_bytes() == before


def test_written_page_has_a_row_of_every_kind_and_adds_up() -> None:
    text = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    (head,) = (line for line in text.splitlines() if line.startswith("| defect |"))
    assert all(tool in head for tool in TOOLS)
    table = {
        kind: re.search(rf"^\| {kind} \| (\d+) \| (\d+) of (\d+) \|", text, re.MULTILINE) for kind in [*KINDS, "all"]
    }
    assert all(table.values())
    numbers = {kind: [int(n) for n in match.groups()] for kind, match in table.items() if match}
    for column in range(3):
        assert sum(numbers[kind][column] for kind in KINDS) == numbers["all"][column]
    assert numbers["all"][0] == numbers["all"][2]
    survivors = re.search(r"^(\d+) of (\d+) defects were not found", text, re.MULTILINE)
    assert survivors and int(survivors[1]) == numbers["all"][2] - numbers["all"][1]
