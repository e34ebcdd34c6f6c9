"""Whole runs, process start included: against scripts that do the same work, from the store, collecting only."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.common import ROOT, Row, interleaved, run_python

OPERATORS = ("torch.relu(x)", "torch.sigmoid(x)", "torch.tanh(x) * x", "x / (1 + x.abs())", "torch.exp(-x * x)")
OPSETS = {"torchscript": (11, 13, 15, 17), "dynamo": (20,)}
TRACED = {"torchscript": (7, 3), "dynamo": (7,)}
"""Sizes that the harness exports each model at: TorchScript at a second one, to see whether a size is baked in."""

START = '''
"""The same work without the harness."""
import io, logging, warnings
import numpy as np, onnx, onnxruntime, torch
torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("torch.onnx").setLevel(logging.ERROR)
rng = np.random.default_rng(0)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1

def open_session(model):
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

def shapes():
    return ((1 + example % 64, 5) for example in range({examples}))

class Module{index}(torch.nn.Module):
    def forward(self, x):
        return {expression} + {index}
'''
EXPORT = {
    "torchscript": """
def export(module, batch, opset):
    buffer = io.BytesIO()
    torch.onnx.export(module, (torch.randn(batch, 5),), buffer, dynamo=False, opset_version=opset,
                      input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}})
    return None, buffer.getvalue()
""",
    "dynamo": """
def export(module, batch, opset):
    program = torch.onnx.export(module, (torch.randn(batch, 5),), dynamo=True, opset_version=opset, verbose=False,
                                input_names=["x"], output_names=["y"],
                                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    return program, program.model_proto.SerializeToString()
""",
}
VERIFY = {
    "bare": """
def verify(module, program, model):
    session, twin = open_session(model), type(module)().double()
    for shape in shapes():
        x = rng.standard_normal(shape, dtype=np.float32)
        wanted = module(torch.from_numpy(x)).numpy()
        exact = twin(torch.from_numpy(x).double()).numpy()
        (got,) = session.run(None, {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
        assert np.abs(exact - wanted).max() < 1e-3
""",
    "polygraphy": """
from polygraphy.backend.onnxrt import OnnxrtRunner
from polygraphy.comparator import Comparator
from polygraphy.logger import G_LOGGER
G_LOGGER.module_severity = G_LOGGER.CRITICAL

def verify(module, program, model):
    feeds = [{"x": rng.standard_normal(shape, dtype=np.float32)} for shape in shapes()]
    results = Comparator.run([OnnxrtRunner(open_session(model))], data_loader=feeds)
    results.add([{"y": module(torch.from_numpy(feed["x"])).numpy()} for feed in feeds], runner_name="pytorch")
    assert bool(Comparator.compare_accuracy(results))
""",
    "assertion": """
from torch.onnx.testing import assert_onnx_program

def verify(module, program, model):
    program.initialize_inference_session(open_session)
    for shape in shapes():
        assert_onnx_program(program, args=(torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)),))
""",
}
MAIN = """
for module in ({modules}):
    for opset in {opsets}:
        for batch in {traced}:
            program, model = export(module, batch, opset)
        onnx.checker.check_model(model, full_check=True)
        verify(module, program, model)
"""


def rows(quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if quick:
            yield from _against(folder, "torchscript", 2, ["bare"], 1, 1.25)
        else:
            yield from _against(folder, "torchscript", 25, ["bare", "polygraphy"], 3, 1.25)
            yield from _against(folder, "dynamo", 5, ["bare", "assertion"], 3)
        yield _collect(folder, 1 if quick else 3)
        if not quick:
            yield from _store(folder)


_NAMES = {
    "bare": "a bare script",
    "polygraphy": "a script with Polygraphy",
    "assertion": "a script with assert_onnx_program",
}


def _against(
    folder: Path, exporter: str, cases: int, others: Sequence[str], repeats: int, target: float | None = None
) -> Iterator[Row]:
    """``pytest --pyargs conformance`` with an empty store, against scripts that do the same work: start Python,
    export each module for each opset (with TorchScript at two sizes, with dynamo at one, as the harness does),
    check the model in full, open a session, and verify it with as many examples as the harness counted in its
    records. "bare" has the float64 oracle as well, the others do not. All have one thread; the harness reads the
    cases while a process imports PyTorch, and runs as many cells at a time as there are cores, up to four.
    Polygraphy's script is slow and runs once.
    """
    _write_cases(folder / exporter, cases, exporter)
    number = itertools.count()

    def harness() -> None:
        suite(folder, "--store", f"{exporter}-{next(number)}", cases=exporter)

    harness()  # to know the examples, and to have the bytecode files
    records = _records(folder)
    opsets = OPSETS[exporter]
    for other in others:
        examples, left = divmod(sum(r["examples"] for r in records if r["check"] == "accuracy"), cases * len(opsets))
        if left or any(r["status"] != "passed" for r in records):
            raise RuntimeError("not all cells have the same examples and passed")
        (folder / f"script_{other}.py").write_text(_script(exporter, other, cases, examples), encoding="utf-8")
    sides: dict[str, Callable[[], object]] = {"harness": harness}
    slow = {name: _runs(folder, name) for name in others if name == "polygraphy"}
    sides |= {name: _runs(folder, name) for name in others if name not in slow}
    found = interleaved(sides, repeats)
    what = f"{len(records)} cells, {exporter} exporter, whole run"
    for name in others:
        seconds = interleaved({"harness": harness, name: slow[name]}, 1) if name in slow else found
        ratio = seconds.ratio("harness", name)
        limit = "" if target is None or name != "bare" else f"at most {target} ×"
        yield Row(
            what, f"{seconds['harness']:.1f} s", f"{_NAMES[name]}, {seconds[name]:.1f} s", f"{ratio:.2f}",
            limit, ratio.meets(target) if limit and target else None, seconds.repeats,
        )  # fmt: skip
        what = ""


def _runs(folder: Path, script: str) -> Callable[[], object]:
    return lambda: run_python(folder, f"script_{script}.py")


def _script(exporter: str, verify: str, cases: int, examples: int) -> str:
    """A script with the modules of the cases written out, as a user would have them."""
    start, module = START.split("\nclass ")
    modules = [
        f"\nclass {module}".format(index=index, expression=OPERATORS[index % len(OPERATORS)])
        for index in range(cases)
    ]
    main = MAIN.format(
        modules=", ".join(f"Module{index}()" for index in range(cases)) + ",",
        opsets=OPSETS[exporter],
        traced=TRACED[exporter],
    )
    parts = [start.replace("{examples}", str(examples)), *modules, EXPORT[exporter], VERIFY[verify], main]
    return "\n".join(parts)


def _collect(folder: Path, repeats: int) -> Row:
    """``--collect-only`` of 125 case files with 1,000 cells, against pytest collecting one file with 1,000
    parametrized tests of nothing. Neither imports torch."""
    _write_cases(folder / "many", 125, "torchscript")
    (folder / "test_nothing.py").write_text(
        "import pytest\n\n@pytest.mark.parametrize('number', range(1000))\ndef test_nothing(number):\n    pass\n",
        encoding="utf-8",
    )
    bare = ("-m", "pytest", "-q", "--collect-only", "test_nothing.py")
    found = interleaved(
        {
            "suite": lambda: suite(folder, "--collect-only", cases="many"),
            "pytest": lambda: run_python(folder, *bare),
        },
        repeats,
    )
    return Row(
        "`--collect-only`, 1,000 cells", f"{found['suite']:.1f} s", f"1,000 empty tests, {found['pytest']:.1f} s",
        f"{found.ratio('suite', 'pytest'):.2f}", "at most 2 s", found["suite"] <= 2, repeats,
    )  # fmt: skip


def _store(folder: Path) -> Iterator[Row]:
    """The second run on an unchanged tree: all examples are verified again, nothing is exported again. The
    shipped cases of one topic whose share of dynamo exports is near that of all shipped cases; all of its
    cells, its dynamo cells, and only its dynamo exports. There is nothing to compare with but the first run. The
    target is that of the whole catalogue (``catalogue``): here importing PyTorch is a third of the second run.
    """
    shipped = ROOT / "cases"
    everything = _dynamo_share(suite(folder, "--collect-only", cases=str(shipped)))
    graph = str(shipped / "graph")
    share = _dynamo_share(suite(folder, "--collect-only", cases=graph))
    yield _reuse(folder, graph)
    for what, repeats, arguments in (
        (f"`cases/graph`, {share:.0%} of its exports dynamo (all cases: {everything:.0%})", 2, ()),
        ("`cases/graph`, dynamo cells", 2, ("--exporter", "dynamo")),
        ("`cases/graph`, dynamo exports", 2, ("--exporter", "dynamo", "-k", "test_export")),
    ):
        place = folder / "again"

        def first(arguments: tuple[str, ...] = arguments, place: Path = place) -> None:
            suite(folder, "--store", place.name, *arguments, cases=graph)

        def fresh(first: Callable[[], None] = first, place: Path = place) -> None:
            shutil.rmtree(place, ignore_errors=True)  # a few milliseconds
            first()

        found = interleaved({"first": fresh, "second": first}, repeats)
        ratio = found.ratio("second", "first")
        yield Row(
            f"second run from the store: {what}, {len(_records(folder))} cells", f"{found['second']:.1f} s",
            f"the first, {found['first']:.1f} s", f"{ratio:.2f}", repeats=repeats,
        )  # fmt: skip


def _reuse(folder: Path, cases: str) -> Row:
    """The second run on an unchanged tree with ``--reuse``: cells that passed are not run again."""

    def first() -> None:
        shutil.rmtree(folder / "again", ignore_errors=True)
        suite(folder, "--store", "again", cases=cases)

    def second() -> None:
        suite(folder, "--store", "again", "--reuse", "report", cases=cases)

    found = interleaved({"first": first, "second": second}, 2)
    records = [record for record in _records(folder) if record["status"] != "skipped"]  # those have not run at all
    if not records or not all(record["reused"] for record in records):
        raise RuntimeError("a cell was run again")
    ratio = found.ratio("second", "first")
    return Row(
        f"second run on an unchanged tree, `--reuse`: `cases/graph`, {len(records)} cells",
        f"{found['second']:.1f} s", f"the first, {found['first']:.1f} s", f"{ratio:.2f}",
        "at most 0.25 ×", ratio.meets(0.25), found.repeats,
    )  # fmt: skip


def _dynamo_share(collected: str) -> float:
    exports = [line for line in collected.splitlines() if "::test_export[" in line]
    return sum("-dynamo-" in line for line in exports) / len(exports)


def _write_cases(folder: Path, cases: int, exporter: str) -> None:
    """Case files with one small operator each, and two cells for each opset: ``export`` and ``accuracy``."""
    folder.mkdir()
    for index in range(cases):
        expression = OPERATORS[index % len(OPERATORS)]
        (folder / f"case{index}.yaml").write_text(
            f"case{index}:\n  about: benchmark\n  forward: {expression} + {index}\n"
            "  inputs: {x: 'float32[batch, 5]'}\n  dims: {batch: 1..64}\n"
            f"  runtimes: onnxruntime\n  specials: false\n  export: {{{exporter}: {list(OPSETS[exporter])}}}\n",
            encoding="utf-8",
        )


def suite(folder: Path, *arguments: str, cases: str) -> str:
    """A run of the suite in a process of its own. An exit code of 1 is allowed: some of the shipped cells may be
    red on another host, and the time is what counts here."""
    command = ("-m", "pytest", "--pyargs", "conformance", "-q", "--cases", cases, "--report", "report", *arguments)
    return run_python(folder, *command, allowed=(0, 1))


def _records(folder: Path) -> list[Mapping[str, object]]:
    """The records of the last run of the suite."""
    run = json.loads((folder / "report" / "run.json").read_text(encoding="utf-8"))
    records: list[Mapping[str, object]] = run["records"]
    return records
