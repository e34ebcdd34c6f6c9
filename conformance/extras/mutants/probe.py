"""In a worker: the mutants of a model, and whether a legal input tells one from the sound model."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case.draw.draw import Draw, seed_of
from conformance.case.draw.value_regimes import make as make_values
from conformance.case.draw.value_regimes import positions
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.compare.shown import shown
from conformance.extras.mutants.kinds import View, choose
from conformance.models.reference.out_of_range import taken_beyond, takes
from conformance.process.arrays import Array, Inputs, same
from conformance.process.disk.onnx_models import Serialized
from conformance.process.errors import Stopped, attempt
from conformance.runtimes.onnxgraph.cut import expose

if TYPE_CHECKING:
    from conformance.models.cell_run import CellRun


INDEPENDENT = 240
"""Inputs, besides those of the suite, on which a mutant may show that it differs; a twentieth for large models."""


@dataclass(frozen=True)
class MadeMutant:
    """A mutant in a store of its own."""

    kind: str
    node: str
    what: str
    store: Path


def run_of(cell: Cell, store: Path) -> contextlib.AbstractContextManager[CellRun]:
    """Return what the checks of a cell work with, inside the folder of its case."""
    from conformance.models.cell_run import CellRun

    return CellRun.opened(cell, Settings(store=store))


def make(progress: object, cell: Cell, store: Path, folder: Path, count: int) -> list[MadeMutant]:
    """Put mutants of a cell's model, which is in ``store``, into stores of their own under the model's key."""
    import onnx

    from conformance.models.exporters import graph
    from conformance.models.kept.observed_dependencies import Observed
    from conformance.runtimes.onnxruntime import OnnxRuntimeSession

    with run_of(cell, store) as run:
        libraries, inputs = run.libraries(), run.prepared.inputs()
        model = onnx.load(str(run.model().file))

        def traced(names: Sequence[str]) -> list[Array]:
            wanted = [*dict.fromkeys(names)]
            shown = expose(model, wanted, instead=True)
            session = OnnxRuntimeSession(shown.SerializeToString(), libraries, optimize=False)
            values = dict(zip(wanted, session.run(inputs), strict=True))
            return [values[name] for name in names]

        def loads(data: bytes) -> None:
            OnnxRuntimeSession(data, libraries, optimize=True)

        found, made = [], []
        for number, (kind, site, data) in enumerate(choose(View(model, traced), seed_of(cell.id), count, loads)):
            place = folder / f"mutant{number}" / "models"
            written = Serialized(data)
            made.append((place, written, graph.read(onnx.load_from_string(data), written)))
            found.append(MadeMutant(kind, site.node, site.what, place))
    for place, written, facts in made:
        with run_of(cell, place) as mutant:
            mutant.keep_model(written, facts, {"export": 0.0}, Observed())
    return found


@dataclass(frozen=True)
class Given:
    """Inputs that the suite's own drawing has no part in."""

    inputs: Inputs
    beyond: bool = False
    """Whether some lie beyond the values that the case declares, which the module takes."""


def independent(run: CellRun, count: int, specials: bool) -> list[Given]:
    """Legal inputs that the suite's own drawing has no part in, several for each shape.

    Where the case's own Python makes the values, it does so here too: nothing else knows which are legal. With
    ``specials``, every fourth has NaN, infinities or signed zeros wherever the case takes them. Every fifth goes
    beyond the ranges that the case declares, where PyTorch takes that: a case of narrow values does not decide what a
    module is for.
    """
    says, dims = run.cell.case.says, run.dims()
    rng = np.random.default_rng(seed_of(run.cell.id, "independent"))
    resolve = run.reference.folder.resolve
    found = [Given(run.prepared.inputs())]  # which everybody looks at
    wider = taken_beyond(run.reference, run.prepared.maker, run.prepared.trace())
    sizes: dict[str, int] = {}
    while len(found) < count:
        if not sizes or len(found) % 3 == 0:
            while True:
                sizes = {}
                for name, r in dims.ranges.items():
                    sizes[name] = int(rng.choice(np.array(r.values(sizes))))
                if dims.allow(sizes):
                    break
        inputs: Inputs = {}
        beyond = bool(wider) and len(found) % 5 == 4
        for name, one in says.inputs.items():
            shape, dtype = one.type.at(sizes), np.dtype(one.type.dtype)
            if one.values is not None and one.values.mask is not None:
                inputs[name] = make_values(one, sizes, "plain", rng)
            elif one.values is not None and one.values.python is not None:
                inputs[name] = np.asarray(resolve(one.values.python)(shape, dict(sizes), rng))
            else:
                values = wider.get(name, one.values) if beyond else one.values
                inputs[name] = np.asarray(_values(values, sizes, shape, dtype, rng)).astype(dtype)
        inputs |= positions(says.inputs, inputs)
        if says.draw is not None:
            inputs |= {name: np.asarray(array) for name, array in resolve(says.draw)(dict(sizes), rng).items()}
        if specials and len(found) % 4 == 3:
            inputs = {
                name: _special(array, rng) if says.takes_specials(name) else array for name, array in inputs.items()
            }
        if not beyond or takes(run.reference, inputs):
            found.append(Given(inputs, beyond))
        else:
            wider = {}
    return found


def _values(values: Any, sizes: Mapping[str, int], shape: tuple[int, ...], dtype: np.dtype[Any], rng: Any) -> Array:
    """Of the kind and in the range that the input declares; otherwise of all sizes up to 1000, some with ties."""

    if values is not None and values.permutations is not None:
        return np.asarray(rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1))
    if values is not None and values.choice is not None:
        return np.asarray(rng.choice(values.choice, size=shape))
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < rng.random())
    if values is not None and values.integers is not None:
        low, high = values.integers.at(sizes)
        return np.asarray(rng.integers(int(low), int(high) + 1, size=shape))
    if values is not None and values.uniform is not None:
        low, high = values.uniform.at(sizes)
        return np.asarray(low + (high - low) * rng.beta(*rng.choice([0.3, 1.0, 3.0], 2), size=shape))
    if values is not None and values.normal is not None:
        return np.asarray(rng.normal(values.normal.mean, values.normal.std, size=shape))
    scale = 10.0 ** rng.uniform(-3, 3)
    kind = rng.integers(4)
    if kind == 0:
        return np.asarray(scale * rng.standard_normal(shape))
    if kind == 1:
        return np.asarray(scale * rng.uniform(rng.choice([-1, 0]), 1, size=shape))
    if kind == 2:
        return np.asarray(rng.integers(-3, 4, size=shape) / rng.choice([1, 2, 10]))
    return np.asarray(rng.standard_t(3, size=shape))


def _special(array: Array, rng: Any) -> Array:
    array = np.array(array)
    here = rng.random(array.shape) < 0.15
    array[here] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0], dtype=array.dtype), size=int(here.sum()))
    return array


def _count(run: CellRun) -> int:
    return INDEPENDENT if run.model().file.stat().st_size < 2**20 else INDEPENDENT // 20


def differs(progress: object, cell: Cell, sound: Path, mutant: Path, specials: bool) -> bool:
    """Return whether outputs are other than the sound model's on any of the independent inputs; -0.0 is 0.0."""
    from conformance.runtimes import opener

    with run_of(cell, mutant) as planted:
        wrong = planted.kept_model()
        assert wrong is not None
    with run_of(cell, sound) as run:
        open_model, libraries = opener(f"{cell.runtime}"), run.libraries()
        with open_model(run.model().file, libraries) as one, open_model(wrong.file, libraries) as other:
            for inputs in (one.inputs for one in independent(run, _count(run), specials)):
                wanted = attempt(partial(one.run, inputs))
                if isinstance(wanted, Exception):
                    continue  # not for this model, whatever it is
                got = attempt(partial(other.run, inputs))
                if isinstance(got, Exception) or not same(got, wanted):
                    return True
    return False


@dataclass(frozen=True)
class Judged:
    """The verdict of the suite's own comparison on a mutant, on the independent inputs."""

    asked: int
    refused: int
    unclear: int
    """Ill-conditioned, so that the comparison does not say."""
    largest: float
    """The largest error relative to what is allowed, of those that were not refused."""
    example: str
    """What the comparison says of the first that is refused."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The inputs of that, each in a few words."""
    beyond: int = 0
    """How many of those that were refused lie beyond the values that the case declares."""


def judge(progress: object, cell: Cell, mutant: Path, specials: bool) -> Judged:
    """Hold a mutant's outputs on the independent inputs against PyTorch's, as the cell would."""
    from conformance.judge.verify import Verifier
    from conformance.runtimes import opener

    with run_of(cell, mutant) as run:
        stored = run.model()
        refused, beyond, unclear, largest, example = 0, 0, 0, 0.0, ""
        telling: dict[str, str] = {}
        given = independent(run, _count(run), specials)
        with opener(f"{cell.runtime}")(stored.file, run.libraries()) as session:
            verify = Verifier(run.of_cell(stored), session)
            for one in given:
                inputs = one.inputs
                try:
                    found = verify.run(verify.example(Draw({}, "independent", 0), inputs))
                    unclear += found.verdict != "verified"
                    largest = max(largest, found.worst.ratio if found.worst else 0.0)
                except Stopped as stop:
                    if stop.stage == "declare":
                        continue
                    if not refused:
                        example, telling = f"{stop.reason}", shown(inputs)
                    refused += 1
                    beyond += one.beyond
        return Judged(len(given), refused, unclear, largest, example, telling, beyond)
