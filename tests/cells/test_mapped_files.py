"""Cells of files with large weights, which are not read as a message: found is what is found in small files."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from conformance.case.files.case_file import load
from conformance.case.files.python import Folder
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.models.exporters.taken_file import TakenFile
from conformance.models.otherwise.rounding import Rounding
from conformance.models.reference.file_reference import FileReference
from conformance.process.disk.onnx_models import MODEL, WEIGHTS
from conformance.process.errors import attempt
from conformance.results.records.record import Record
from conformance.runtimes.onnxgraph import mapped
from tests.kit.calls import count_calls
from tests.kit.cases import PASSED, Bench, verdict
from tests.kit.models import model_of

SIDE = 64
"""Of the squares of float32 that the files here have."""
BODY = "net:\n  about: a large file\n  onnx: net.onnx\n  dims: {batch: 1..4}\n"
NARROW = "  precisions: {fp16: {}, int8: {}}\n  onnxruntime: {config: {session.x64quantprecision: 1}}\n"
BESIDE = {"save_as_external_data": True, "location": "net.bin", "size_threshold": 0}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and weights of a few thousand bytes are large."""
    monkeypatch.setattr(mapped, "SMALL", 2**12)
    monkeypatch.setattr(mapped, "LARGE", 2**12)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


def net(place: int | None = None) -> onnx.ModelProto:
    """Two layers; ``place`` is that of one wrong weight in the last of them."""
    rng = np.random.default_rng(0)
    first, last = (rng.standard_normal((SIDE, SIDE)).astype(np.float32) / 8 for _ in range(2))
    if place is not None:
        last.reshape(-1)[place] += 0.5
    nodes = "h = MatMul (x, first) r = Tanh (h) z = MatMul (r, last) y = Add (z, bias)"
    text = f"net (float[batch, {SIDE}] x) => (float[batch, {SIDE}] y) {{ {nodes} }}"
    return model_of(text, first=first, last=last, bias=rng.standard_normal(SIDE).astype(np.float32))


def cells(
    folder: Path, body: str = BODY, options: dict[str, object] | None = None, **files: onnx.ModelProto
) -> list[Cell]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in files.items():
        onnx.save(made, folder / f"{name}.onnx", **(options or {}))
    (folder / "net.yaml").write_text(body, encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return list(plan(case))


def of(planned: list[Cell], check: str, precision: str = "fp32") -> Cell:
    return next(cell for cell in planned if (cell.check, cell.precision) == (check, precision))


def said(record: Record) -> tuple[object, ...]:
    """The fields of a record, but for seconds and the size of the file, which the place of weights decides."""
    graph = {name: value for name, value in (record.graph or {}).items() if name != "bytes"}
    return verdict(record), record.reason, record.examples, graph, record.warnings, record.arithmetic


@pytest.mark.parametrize("options", [{}, BESIDE], ids=["one file", "weights beside"])
def test_cells_say_the_same_as_of_a_model_that_onnx_reads(tmp_path, bench, options, monkeypatch):
    told = {}
    for name, small in (("mapped", mapped.SMALL), ("read", 2**40)):
        monkeypatch.setattr(mapped, "SMALL", small)
        monkeypatch.setattr(mapped, "LARGE", small)
        own = Bench(tmp_path, tmp_path / name / "store")
        planned = cells(tmp_path / name, BODY + NARROW, options, net=net())
        with count_calls(TakenFile.write) as counts:
            told[name] = {f"{one.check} {one.precision}": said(own.run_cell(one, examples=3)) for one in planned}
        assert bool(counts["write"]) is (name == "mapped")
        assert bool([*own.store.rglob(WEIGHTS)]) is (name == "mapped" and bool(options))
    assert told["mapped"] == told["read"]
    assert {name for name, one in told["read"].items() if one[0] == PASSED} >= {
        "export fp32", "accuracy fp32", "fidelity fp16", "accuracy fp16", "fidelity int8",
    }  # fmt: skip


@pytest.mark.parametrize("options", [{}, BESIDE], ids=["one file", "weights beside"])
def test_what_is_right_has_the_same_bits_in_all_precisions(tmp_path, options, monkeypatch):
    case, told = of(cells(tmp_path / "case", options=options, net=net()), "accuracy").case, []
    inputs = {"x": np.random.default_rng(1).standard_normal((3, SIDE)).astype(np.float32)}
    for small in (mapped.SMALL, 2**40):
        monkeypatch.setattr(mapped, "SMALL", small)
        monkeypatch.setattr(mapped, "LARGE", small)
        with Folder.of(case.folder).active() as folder:
            reference = FileReference(case, folder)
            answers = reference(inputs), reference.oracle(inputs), reference.oracle(inputs, Rounding(24, 3))
        assert reference.oracle_missing is None
        told.append([array.tobytes() for arrays in answers for array in arrays or []])
    assert told[0] == told[1] and len({*told[0]}) == 3


def test_the_file_is_kept_as_it_is(tmp_path, bench):
    planned = cells(tmp_path / "case", net=net())
    assert verdict(bench.run_cell(of(planned, "export"))) == PASSED
    (kept,) = bench.store.rglob(MODEL)
    assert kept.read_bytes() == (tmp_path / "case" / "net.onnx").read_bytes()


@pytest.mark.parametrize(("place", "options"), [(0, {}), (SIDE * SIDE - 1, {}), (SIDE * SIDE // 2 + 7, BESIDE)])
def test_one_wrong_weight_deep_in_what_runs_is_found(tmp_path, bench, place, options, monkeypatch):
    """In all that run it, so that nobody seconds ONNX's evaluator."""
    write = TakenFile.write

    def spoilt(self: TakenFile, folder: Path) -> Path:
        file = write(self, folder)
        onnx.save(net(place), file, **({**options, "location": WEIGHTS} if options else {}))
        return file

    monkeypatch.setattr(TakenFile, "write", spoilt)
    record = bench.run_cell(of(cells(tmp_path / "case", options=options, net=net()), "accuracy"), examples=2)
    assert record.status == "skipped" and "give other values (WrongValue)" in str(record.reason)


def test_one_wrong_weight_of_those_that_outputs_are_compared_with_is_found(tmp_path, bench, monkeypatch):
    """The twin: what runs is sound, and one of the weights is not that are read of the file."""
    read = mapped._values_at

    def spoilt(place):
        values = read(place).copy()
        if place.size == 4 * SIDE * SIDE:
            values.view(np.float32)[SIDE + 1] += 0.5
        return values

    monkeypatch.setattr(mapped, "_values_at", spoilt)
    record = bench.run_cell(of(cells(tmp_path / "case", net=net()), "accuracy"), examples=2)
    assert record.status == "skipped" and "give other values (WrongValue)" in str(record.reason)


def test_another_large_file_with_one_wrong_weight_is_found(tmp_path, bench):
    body = f"{BODY}  export: {{onnx: {{opsets: [17], file: other.onnx}}}}\n"
    wrong = cells(tmp_path / "wrong", body, net=net(), other=net(SIDE * SIDE - 5))
    record = bench.run_cell(of(wrong, "accuracy"), examples=2)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    same = cells(tmp_path / "same", body, net=net(), other=net())
    assert verdict(bench.run_cell(of(same, "accuracy"), examples=2)) == PASSED


@pytest.mark.parametrize("cut", [100, 4 * SIDE * SIDE])
def test_a_large_file_that_is_cut_off_is_refused_in_the_words_of_onnx(tmp_path, bench, cut):
    planned = cells(tmp_path / "case", net=net())
    file = tmp_path / "case" / "net.onnx"
    file.write_bytes(file.read_bytes()[:-cut])
    record = bench.run_cell(of(planned, "export"))
    assert verdict(record) == ("failed", "declare", "BadModel", "case")
    assert record.reason == f"net.onnx cannot be read: {attempt(lambda: onnx.load(file))}"


def test_weights_of_the_wrong_size_are_refused_in_the_words_for_a_model_that_onnx_reads(tmp_path, bench, monkeypatch):
    model, reasons = net(), []
    model.graph.initializer[0].raw_data += bytes(4)
    for name, small in (("mapped", mapped.SMALL), ("read", 2**40)):
        monkeypatch.setattr(mapped, "SMALL", small)
        record = bench.run_cell(of(cells(tmp_path / name, net=model), "export"))
        reasons.append((record.status, record.reason))
    assert reasons[0] == reasons[1] and "nobody says what the file means" in reasons[0][1]


def test_a_file_that_changes_before_its_weights_are_read_ends_the_cell(tmp_path, bench, monkeypatch):
    planned = cells(tmp_path / "case", net=net())
    file, read = tmp_path / "case" / "net.onnx", mapped._values_at

    def write_then_read(place):
        file.write_bytes(bytes(file.stat().st_size + 1))
        return read(place)

    monkeypatch.setattr(mapped, "_values_at", write_then_read)
    record = bench.run_cell(of(planned, "accuracy"))
    assert verdict(record) == ("failed", "declare", "BadModel", "case")
    assert record.reason == "net.onnx cannot be read: net.onnx has changed since the model was read"


def test_a_sound_large_file_is_read_by_nobody_but_runtimes(tmp_path, bench, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the whole file is read")

    planned = cells(tmp_path / "case", net=net())
    monkeypatch.setattr(onnx, "load", refuse)
    for check in ("export", "accuracy"):
        assert verdict(bench.run_cell(of(planned, check), examples=2)) == PASSED
