"""The check ``recorded``: a runtime gives the outputs that somebody recorded for recorded inputs.

Recorded outputs are an oracle beside ONNX's evaluator, and a runtime that gives them is right. Where it does not,
others are run on the same inputs: if one of them gives the recorded outputs, the runtime is wrong; if all agree on
others, the data is of another model; if nobody gives what anybody else does, nothing can be said.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from conformance.case.draw.few_bits import carried, given_back
from conformance.case.files.onnx_header import header
from conformance.case.files.recording import Recorded
from conformance.cells.input_slips import find_slip
from conformance.compare.close import distances
from conformance.compare.recorded_values import difference, named_tensors
from conformance.models.cell_run import CellRun
from conformance.models.otherwise.undefined_file import OpenSession, UndefinedInFile
from conformance.models.reference.float64_model import load, load_mapped
from conformance.process.arrays import Array
from conformance.process.disk.onnx_models import serialized
from conformance.process.disk.recorded_data import RecordedSet, read_recorded, shortened
from conformance.process.disk.recorded_tensors import read_interface
from conformance.process.errors import NoVerdict, Stopped, Unavailable, attempt, or_else, summarize
from conformance.results.records.details import RULES
from conformance.results.records.explanation import Explanation, blame, kernels
from conformance.results.records.record import Witness
from conformance.runtimes import Session, opener, registry
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.reads import all_nodes
from conformance.runtimes.unsupported import refusal

WITNESSES = tuple(
    runtime.name for runtime in registry.RUNTIMES if runtime.second_opinion or runtime.name == "onnxruntime"
)
"""Runtimes that are asked about a set on which another fails, in this order."""
FOREIGN = "ForeignData"
"""The name of the error of recorded data that is another model's."""


def check_recorded(run: CellRun) -> None:
    """Run every recorded set of the case in the runtime of the cell."""
    cell, says = run.cell, run.cell.case.says.recorded
    assert cell.runtime is not None and says is not None
    with run.stages("declare", "case"):
        sets = recorded_sets(run)
        file = _model(run)
    with contextlib.ExitStack() as stack:
        odd = sorted({name for one in sets for name in _beyond_numpy(one)})
        if odd and not any(tensor.holder for tensor in header(file).inputs):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-carried-")))
            file, sets, odd = serialized(load(file)).write(folder), [*map(_carried, sets)], []
        session = _loaded(run, file, stack)
        for one in sets:
            _check_set(run, says, file, session, one, odd)
    if not run.record.examples:
        raise Stopped("declare", "NothingVerified", "no recorded set could be compared", "case")


def recorded_sets(run: CellRun) -> list[RecordedSet]:
    """Return the sets that the case names. Raises Stopped for what does not fit its model."""
    case = run.cell.case
    assert case.says.recorded is not None
    interface = read_interface(case.folder / str(case.says.onnx))
    data = read_recorded([case.folder / name for name in case.says.recorded.data], interface)
    if data.left_out:
        raise Stopped("declare", "BadData", data.left_out[0], "case")
    return [shortened(one, case.folder) for one in data.sets]


def check_meaning(run: CellRun) -> None:
    """Raise NoVerdict where what says what a file means does not give the recorded outputs: it is no measure of
    drawn values then."""
    says = run.cell.case.says.recorded
    for one in recorded_sets(run) if says is not None else ():
        inputs: Any = one.inputs
        given = attempt(partial(run.reference.afresh, inputs))
        if says is None or isinstance(given, Exception):  # which is reported of the first draw
            continue
        found = difference(_given_back(given, one), one.outputs, says.rtol, says.atol)
        if found is not None:
            raise NoVerdict(
                f"ONNX's evaluator does not give the recorded outputs ({one.name}: {found.text}), so that nobody "
                "says what is right for drawn values"
            )


def _model(run: CellRun) -> Path:
    """Return the model that runs: the file itself, another that the case names, or what is made of it."""
    case, target = run.cell.case, run.cell.case.says.export.onnx
    if target is not None and target.simplify:
        return run.model().file
    return case.folder / str(case.says.onnx if target is None or target.file is None else target.file)


def _loaded(run: CellRun, file: Path, stack: contextlib.ExitStack) -> Session:
    cell = run.cell
    assert cell.runtime is not None
    entry = registry.named(cell.runtime)
    config = run.config() if "config" in entry.takes else {}
    try:
        with run.stages("load", "runtime"):
            return stack.enter_context(opener(cell.runtime, None, config)(file, run.libraries()))
    except Stopped as stop:
        raise if_supported(cell.runtime, stop) from stop


def if_supported(runtime: str, stop: Stopped) -> Stopped:
    """Return the failure. Raises Unavailable where the runtime has no kernel, type or opset that the model needs, or
    the host lacks what it asks for."""
    said = refusal(runtime, stop.__cause__)
    if said is not None:
        raise Unavailable(said) from stop
    return stop


def _check_set(
    run: CellRun, says: Recorded, file: Path, session: Session, one: RecordedSet, odd: Sequence[str]
) -> None:
    """Compare what the session gives for one set. Raises Stopped where it is not what was recorded; ``odd`` are types
    that NumPy lacks, and that are handed to the session as they are."""
    assert run.cell.runtime is not None
    inputs: Any = one.inputs
    try:
        with run.stages("run", "runtime"):
            got = session.run(inputs)
    except Stopped as stop:
        if odd:
            raise _not_passed(run.cell.runtime, odd) from stop
        stop = if_supported(run.cell.runtime, stop)
        stop.reason = f"{one.name}: {stop.reason}"
        raise _judged(run, says, file, session, one, stop, None) from stop
    with run.stages("compare", "runtime"):
        got = _given_back(got, one)
        found = difference(got, one.outputs, says.rtol, says.atol)
    if found is None:
        run.record.examples += 1
        return
    if odd:
        raise _not_passed(run.cell.runtime, odd)
    known = open_values(file, one)
    if known is not None and difference(got, known.settled(one, got), says.rtol, says.atol) is None:
        raise NoVerdict(
            f"{one.name}: {found.text}, which ONNX leaves open: {'; '.join(RULES[name] for name in known.rules)}"
        )
    wrong = Stopped("compare", found.error, f"{one.name}: {found.text}", "runtime")
    raise _judged(run, says, file, session, one, wrong, got, known)


def _carried(one: RecordedSet) -> RecordedSet:
    """Return a set with inputs in types that NumPy has, as a model that casts them takes them."""
    inputs = {name: carried(value) if isinstance(value, np.ndarray) else value for name, value in one.inputs.items()}
    return replace(one, inputs=inputs)


def _given_back(outputs: Sequence[Array], one: RecordedSet) -> list[Array]:
    """Return outputs in the types that were recorded, where they are carried in others."""
    wanted = [value for _, value in named_tensors(one.outputs)]
    if len(wanted) != len(outputs):
        return list(outputs)
    return [
        given_back(got, right.dtype) if isinstance(got, np.ndarray) and isinstance(right, np.ndarray) else got
        for got, right in zip(outputs, wanted, strict=True)
    ]


def _beyond_numpy(one: RecordedSet) -> list[str]:
    """Return the types in a set that NumPy itself lacks, and that runtimes take and give in ways of their own."""
    values = [value for _, value in named_tensors({**one.inputs, **one.outputs})]
    dtypes = (value.dtype for value in values if isinstance(value, np.ndarray))
    return sorted({dtype.name for dtype in dtypes if dtype.isbuiltin != 1 and dtype.names is None})


def _not_passed(runtime: str, odd: Sequence[str]) -> NoVerdict:
    """Return that a difference shows nothing, as values of these types may be misread on the way to a runtime or
    back."""
    title = registry.named(runtime).title
    return NoVerdict(f"{', '.join(odd)}: NumPy lacks it, and what is exchanged with {title} is not what was recorded")


def _judged(
    run: CellRun, says: Recorded, file: Path, session: Session, one: RecordedSet, stop: Stopped,
    got: Sequence[Array] | None, known: OpenValues | None = None,
) -> Stopped:  # fmt: skip
    """Return the failure with who is at fault by what others give for the same inputs, but for what ONNX leaves open
    of it (``known``).

    Raises NoVerdict where nobody can say whether the recorded outputs are those of the model.
    """
    if _trains(file, one):
        raise NoVerdict(f"{one.name}: Dropout in training draws random numbers, which no two runs have to share")
    answers: list[Witness] = []
    for name in WITNESSES:
        if name == run.cell.runtime or registry.absence(name) is not None:
            continue
        given = attempt(partial(_outputs, name, file, one))
        if isinstance(given, Exception):
            answers.append(Witness(name, "abstains", reason=summarize(given)))
        elif difference(given, _right(one, given, known), says.rtol, says.atol) is None:
            answers.append(Witness(name, "agrees"))
        else:
            same = _right(replace(one, outputs=_named(given, one)), got or (), known)
            alike = got is not None and difference(got, same, says.rtol, says.atol) is None
            answers.append(Witness(name, "wrong" if alike else "otherwise"))
    own = kernels(run.cell.runtime or "")
    agreeing, against, otherwise = (
        {kernels(one.runtime) for one in answers if one.answer == word} for word in ("agrees", "wrong", "otherwise")
    )
    if agreeing == {"onnx-reference"} and against - {own}:
        raise NoVerdict(
            f"{stop.reason}; {_titled(against - {own})} gives the same, and ONNX's evaluator alone what was "
            "recorded: it is open what the standard means"
        )
    if agreeing:
        return blame(stop, Explanation("runtime", None, tuple(answers)))
    slip = None if got is None else _slip(says, session, one)
    if slip is not None:
        text = f"{stop.reason}; with {slip} the recorded outputs come out, so that the data has to be recorded so"
        return blame(Stopped("declare", FOREIGN, text), Explanation("case", None, tuple(answers)))
    if against - {own} and not otherwise:
        text = (
            f"{stop.reason}; others give the same for these inputs, so that the recorded outputs are not this model's"
        )
        return blame(Stopped("declare", FOREIGN, text), Explanation("case", None, tuple(answers)))
    if otherwise:
        raise NoVerdict(
            f"nobody gives the recorded outputs: {stop.reason}; {_listed(answers)}: the model is random, leaves it "
            "open, or the data is another model's"
        )
    return blame(stop, Explanation(None, None, tuple(answers)))


def _slip(says: Recorded, session: Session, one: RecordedSet) -> str | None:
    """Return in words how the recorded inputs, or the order of the outputs, would be right; None where nothing is
    found that would."""

    def run(inputs: Any) -> list[Array]:
        return _given_back(session.run(inputs), one)

    def alike(got: Sequence[Any], outputs: Mapping[str, Any]) -> bool:
        return difference(got, outputs, says.rtol, says.atol) is None

    return find_slip(one.inputs, one.outputs, run, alike)


def _right(one: RecordedSet, got: Sequence[Array], known: OpenValues | None) -> Mapping[str, object]:
    """Return the recorded outputs that outputs are compared with: where ONNX leaves values open, any are right."""
    return one.outputs if known is None else known.settled(one, got)


def _trains(file: Path, one: RecordedSet) -> bool:
    """Return whether an input of the set switches a Dropout to training."""
    modes = [node.input[2] for node in all_nodes(read_graph(file))
             if node.op_type == "Dropout" and len(node.input) > 2]  # fmt: skip
    given: list[Any] = [one.inputs.get(name) for name in modes]
    return any(bool(np.any(mode)) for mode in given)


def _titled(names: Iterable[str]) -> str:
    return " and ".join(registry.named(name).title for name in sorted(names))


def _named(given: Sequence[Array], one: RecordedSet) -> dict[str, Any]:
    """Return outputs under the names of the recorded ones, where there are as many."""
    names = [name for name, _ in named_tensors(one.outputs)]
    return {names[at] if at < len(names) else f"{at}": array for at, array in enumerate(given)}


def _listed(answers: Sequence[Witness]) -> str:
    asked = [registry.named(one.runtime).title for one in answers if one.answer != "abstains"]
    return f"{' and '.join(asked)} give others" if asked else "nobody else runs it"


def _outputs(name: str, file: Path, one: RecordedSet) -> Sequence[Array]:
    """Return what another runtime gives for a set."""
    inputs: Any = one.inputs
    with opener(name)(file, []) as session:
        return _given_back(session.run(inputs), one)


_SEEDS = range(3)
"""Other values that are tried: a large one, zero and a small one."""


@dataclass(frozen=True)
class OpenValues:
    """The values of a set's outputs that ONNX leaves open."""

    rules: tuple[str, ...]
    """The names of the rules by which they are."""
    marks: tuple[Array, ...]
    """By output an array of its shape, true where a value is open."""

    def settled(self, one: RecordedSet, got: Sequence[object]) -> Mapping[str, object]:
        """Return the recorded outputs with those of ``got`` where they are open; all recorded ones where ``got`` has
        other shapes."""
        return or_else(one.outputs, lambda: dict(self._settled(one, got)))

    def _settled(self, one: RecordedSet, got: Sequence[Any]) -> Iterator[tuple[str, object]]:
        for (name, right), mark, own in zip(named_tensors(one.outputs), self.marks, got, strict=True):
            right = np.asarray(right)
            if np.shape(own) != right.shape:
                raise ValueError(f"{name} has another shape")
            yield name, np.where(mark, own, right).astype(right.dtype)


def open_values(file: Path, one: RecordedSet) -> OpenValues | None:
    """Return what ONNX leaves open of a set's outputs; None where that is nothing, or where ONNX's evaluator does not
    compute the file.

    It computes the file again with other values in the place of those that no rule of ONNX defines
    (``models.otherwise.undefined_file``): an output that changes with them is not right or wrong.
    """
    return or_else(None, lambda: _open_values(file, one))


def _open_values(file: Path, one: RecordedSet) -> OpenValues | None:
    found = load_mapped(file)
    session = OpenSession(found.model, found.weights)
    inputs = {name: np.asarray(value) for name, value in one.inputs.items()}
    with UndefinedInFile(session, None) as met:
        plain = session.run(inputs)
    if not met.rules:
        return None
    marks = [np.zeros(array.shape, bool) for array in plain]
    for seed in _SEEDS:
        with UndefinedInFile(session, seed):
            outputs = session.run(inputs)
        if [array.shape for array in outputs] != [array.shape for array in plain]:
            return None
        marks = [mark | (distances(a, b) > 0) for mark, a, b in zip(marks, outputs, plain, strict=True)]
    return OpenValues(tuple(sorted(met.rules)), tuple(marks))
