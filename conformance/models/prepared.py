"""A case that is built once in each process: its module, the maker of its inputs, the exports that failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.case.draw.draw import Draw, Maker, seed_of
from conformance.case.draw.shapes import drawn_shapes, trace_sizes
from conformance.case.files.declaration import Case
from conformance.case.files.dims import Dims
from conformance.case.files.precision import Calibration
from conformance.case.files.python import Folder
from conformance.models.coverage.measure_coverage import Zeroed
from conformance.models.kept.model_store import Stored, derived_key, key
from conformance.models.precision.calibration import Feeds, gather
from conformance.models.precision.ranges import Extremes
from conformance.models.reference.file_reference import FileReference
from conformance.models.reference.reference import Reference
from conformance.models.right_outputs import check_steady
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Details, Stopped, display_path
from conformance.process.worker import uses
from conformance.process.worker.state import fence
from conformance.results.records.words import Exporter

KEPT_BYTES = 2**30
"""Weights that a process keeps for later cells; the modules used longest ago go first."""


@dataclass
class Prepared:
    """A case's module and inputs, and the exports of it that failed, which fail for its other cells too."""

    case: Case
    reference: Reference
    maker: Maker
    failed: dict[str, Stopped] = field(default_factory=dict)
    explained: set[str] = field(default_factory=set)
    """The keys of those that failed and about which all is known that can be found out."""
    coverage: dict[str, dict[str, object]] = field(default_factory=dict)
    """What ``cells.coverage`` has measured, by what decides on the outputs."""
    zeroed: dict[str, Zeroed] = field(default_factory=dict)
    """The runs that it has made for that, by draw and the outputs that count."""
    hidden: dict[tuple[Exporter, int], dict[str, Any]] = field(default_factory=dict)
    """What ``diagnose.hidden`` has compared, by exporter and opset."""
    own_code: dict[tuple[Exporter, int], list[Any]] = field(default_factory=dict)
    """What ``diagnose.own_code`` has seen, by exporter and opset."""
    refused: dict[tuple[Exporter, int], Details] = field(default_factory=dict)
    """The findings of ``diagnose.refused`` about models that the checker refuses, by exporter and opset."""
    models: dict[str, Stored] = field(default_factory=dict)
    """Models of this process that no other may take, by key."""
    on_data: dict[str, object] = field(default_factory=dict)
    """Scores that ``cells.own_metric`` has measured of the module on data of the user's own."""
    _answers: dict[bool, list[Array]] = field(default_factory=dict)
    _keys: dict[tuple[Exporter, int], str] = field(default_factory=dict)
    _feeds: dict[str, Feeds] = field(default_factory=dict)
    _extremes: dict[str, Extremes] = field(default_factory=dict)
    _sizes: dict[bool, dict[str, int]] = field(default_factory=dict)
    _shapes: dict[str, list[tuple[dict[str, int], int]]] = field(default_factory=dict)

    def drawn_shapes(self, dims: Dims, count: int, anew: Sequence[int]) -> list[tuple[dict[str, int], int]]:
        """Shapes that Hypothesis draws, with a seed each; others for other numbers in ``anew``. They are drawn once
        for all cells of the case that have these dims, since drawing takes as long as running."""
        name = f"{count} {dims} {[*anew]}"
        if name not in self._shapes:
            self._shapes[name] = drawn_shapes(dims, count, seed_of(self.case.name, *anew))
        return self._shapes[name]

    def trace(self, *, odd: bool = False) -> dict[str, int]:
        """The sizes to export at. The ``odd`` sizes are others, to see whether the graph depends on its sizes."""
        case = self.case
        if odd not in self._sizes:
            self._sizes[odd] = trace_sizes(case.dims, case.says.trace, odd=odd)
        return self._sizes[odd]

    def inputs(self, *, odd: bool = False) -> Inputs:
        """The inputs to export with. Their values depend on the case alone, so that its models agree."""
        return self.maker(self.draw(odd=odd))

    def draw(self, *, odd: bool = False) -> Draw:
        """The draw of these inputs."""
        return Draw(self.trace(odd=odd), "plain", seed_of(self.case.name, "trace", odd))

    def answer(self, *, odd: bool = False) -> list[Array]:
        """Return what PyTorch gives for the inputs to export with; asked once for all models of the case."""
        if odd not in self._answers:
            inputs = self.inputs(odd=odd)
            self._answers[odd] = self.reference.afresh(inputs)
            check_steady(self.reference, inputs, self._answers[odd])
        return self._answers[odd]

    def see_lengths(self) -> None:
        """Ask PyTorch at two sizes, which shows the reference whether the length of a list depends on them."""
        self.answer()
        self.answer(odd=True)

    def rebuilt(self, reference: Reference) -> None:
        """Take a rebuilt module, as an earlier cell has changed the other."""
        self.reference, self._answers, self.on_data = reference, {}, {}

    def key(self, exporter: Exporter, opset: int, suite: str) -> str:
        """The key of what is stated of the exported model."""
        if (exporter, opset) not in self._keys:
            sizes, weights = sorted(self.trace().items()), self.reference.weights
            self._keys[exporter, opset] = key(self.case, exporter, opset, weights, [sizes], suite)
        return self._keys[exporter, opset]

    def feeds(self, says: Calibration, static: Sequence[str], purpose: str = "calibration") -> Feeds:
        """The calibration inputs; the dims in ``static`` are fixed in the model. Each ``purpose`` has its own."""
        name = f"{says.model_dump_json()} {sorted(static)} {purpose}"
        if name not in self._feeds:
            sizes = self.trace()
            dims = self.case.dims.fixing({dim: sizes[dim] for dim in static})
            self._feeds[name] = gather(
                self.case, says, dims, sizes, self.maker, self.reference.folder.resolve, purpose
            )
        return self._feeds[name]

    def extremes(self, model: str, feeds: Feeds, measure: Callable[[], Extremes]) -> Extremes:
        """Return what ``measure`` gives for the exported model with this hash and these inputs; called once for all
        precisions."""
        name = f"{model} {feeds.sha}"
        if name not in self._extremes:
            self._extremes[name] = measure()
        return self._extremes[name]

    def converted_key(self, exporter: Exporter, model: str, precision: str, feeds: Feeds, suite: str) -> str:
        """The key of a converted model in the store, from the hash of the exported one."""
        settings = self.case.says.precisions[precision].model_dump_json()
        return derived_key(model, [exporter, precision, settings, feeds.as_dict()], suite)


_kept: dict[tuple[Path, str], Prepared] = {}


def prepare(case: Case, folder: Folder) -> Prepared:
    """The case with its module, which is built once in each process as long as there is room for its weights, and
    again where an earlier cell has changed it."""
    name = (case.file, case.name)
    prepared = _kept.pop(name, None)
    if prepared is None or prepared.case != case or prepared.reference.outdated():
        with fence.loading():
            prepared = Prepared(case, _reference(case, folder), Maker(case, folder.resolve))
    elif prepared.reference.changed():
        with fence.loading():
            prepared.rebuilt(_reference(case, folder))
    _kept[name] = prepared
    while len(_kept) > 1 and _bytes() > KEPT_BYTES:
        del _kept[next(iter(_kept))]
    return prepared


def _reference(case: Case, folder: Folder) -> Reference:
    """What is right for a case, with the parameters of a module that is kept and built alike, if there is one."""
    alike = (kept.reference.for_case(case) for kept in reversed(_kept.values()))
    return next(filter(None, alike), None) or reference_of(case, folder)


def reference_of(case: Case, folder: Folder) -> Reference:
    """Return what is right for a case, of its own file or module. Raises Stopped at ``declare``."""
    if case.says.onnx is not None:
        return FileReference(case, folder)
    from conformance.models.reference.module_reference import ModuleReference

    return ModuleReference(case, folder)


def _bytes() -> int:
    """Return what the kept modules take, shared parameters counted once."""
    return sum({kept.reference.sharing: kept.reference.bytes for kept in _kept.values()}.values())


def library(reference: Reference, case: Case, name: str) -> str:
    """Return the path of a custom-operator library: a file beside the case file, or what a function returns."""
    file = case.folder / name
    if file.is_file() and file.suffix != ".py":
        return str(file)
    value = reference.folder.resolve(name)
    path = str(value() if callable(value) else value)
    if not Path(path).is_file():
        raise Stopped(
            "declare",
            "MissingFile",
            f"libraries: {name} gave {display_path(Path(path))}, which is not there",
            "case",
        )
    uses.reads(path)
    return path
