"""The models of a bundle, as ``bundle.json`` has them. A bundle may come from anybody: it is validated against these
types before anything of it is used."""
# ruff: noqa: UP013 (a table is easier to take in than classes are)

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from typing_extensions import NotRequired, Required, TypedDict

from conformance.compare.noise import NoiseLimit
from conformance.compare.tolerance import Tolerance
from conformance.results.records.host_conditions import is_met
from conformance.results.records.record_types import Graph
from conformance.results.records.validation import Misfit, check_of, of_type, plain, wrong

DEEPEST = 16
"""How far lists and objects may lie in one another where a field may hold anything. Less than a run file allows,
since what a bundle says goes into the records of its replay; numbers are bounded as there."""

SESSION_OPTIONS = frozenset(
    {
        "optimization.constant_folding_max_output_size_in_bytes", "optimization.disable_specified_optimizers",
        "optimization.enable_cast_chain_elimination", "optimization.enable_gelu_approximation",
        "session.allow_released_opsets_only", "session.disable_aot_function_inlining",
        "session.disable_double_qdq_remover", "session.disable_prepacking", "session.disable_qdq_constant_folding",
        "session.disable_quant_qdq", "session.dynamic_block_base", "session.enable_dq_matmulnbits_fusion",
        "session.enable_quant_qdq_cleanup", "session.graph_optimizations_loop_level",
        "session.qdq_matmulnbits_accuracy_level", "session.qdq_matmulnbits_block_size", "session.qdqisint8allowed",
        "session.set_denormal_as_zero", "session.strict_shape_type_inference", "session.use_deterministic_compute",
        "session.x64quantprecision",
    }
)  # fmt: skip
"""ONNX Runtime's session options that a bundle may set, besides ``mlas.``: they choose how the model is computed.
Others name files that are read or written, or change what is loaded.
https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session/onnxruntime_session_options_config_keys.h"""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


# ---- single values ------------------------------------------------------------------------------------------


def check_path(value: Any) -> None:
    """Raise Misfit for what is no path to a place below a folder: absolute, with ``..``, a backslash or controls."""
    check_of(str)(value)
    parts = value.split("/")
    if value.startswith("/") or re.match("[A-Za-z]:", value):
        raise wrong(value, "a path inside of the bundle: it is absolute")
    if ".." in parts:
        raise wrong(value, "a path inside of the bundle: it has '..'")
    if "\\" in value or _CONTROLS.search(value) or "" in parts or "." in parts:
        raise wrong(value, "a plain path, of names with / between them")


def _check_folder(value: Any) -> None:
    check_path(value)
    if "/" in value or len(value) > 255:
        raise wrong(value, "a name of a folder")


def _check_requirement(value: str) -> None:
    try:
        is_met(value, lambda package: None)
    except ValueError:
        raise wrong(value, "a package and its versions") from None


def _check_not_empty(value: list[int]) -> None:
    if not value:
        raise wrong(value, "a list of axes")


def _check_movement(value: object) -> None:
    """NaN and infinities are numbers here."""
    if type(value) is not float:
        check_of(int)(value)


Path = Annotated[str, check_path]
Size = Annotated[int, range(2**31)]
Seed = Annotated[int, range(-(2**64), 2**64 + 1)]
Axis = Annotated[int, range(-64, 64)]
Kept = Annotated[dict[str, object], partial(plain, depth=DEEPEST)]
"""What is only kept or shown."""


# ---- objects ------------------------------------------------------------------------------------------------

Source = TypedDict("Source", {"file": str | None, "line": Size | None})
Processor = TypedDict("Processor", {"has": NotRequired[list[str] | None], "lacks": NotRequired[list[str] | None]})
Host = TypedDict("Host", {
    "has": NotRequired[list[str]], "lacks": NotRequired[list[str]],
    "versions": NotRequired[list[Annotated[str, _check_requirement]]],
})  # fmt: skip
Apart = TypedDict("Apart", {
    "runtime": str, "host": NotRequired[Host | None], "cpu": NotRequired[Processor | None],
})  # fmt: skip
Set = TypedDict("Set", {
    "dims": dict[str, Size], "regime": str, "seed": Seed, "index": Seed, "apart": list[str | Apart], "exact": bool,
    "conditioning": list[Annotated[Any, _check_movement]] | None, "flags": NotRequired[str | None],
})  # fmt: skip
Expectation = TypedDict("Expectation", {
    "stage": str, "error": str | None, "because": str, "fault": str | None, "place": str, "owed": bool,
    "margin": NotRequired[bool], "host": NotRequired[Host | None], "cpu": NotRequired[Processor | None],
})  # fmt: skip
Indexed = TypedDict("Indexed", {"of": str | Size, "axis": Annotated[list[Axis], _check_not_empty]})
Boxes = TypedDict("Boxes", {"boxes": Size, "with": list[Size], "at_least": float})


class JudgeFields(TypedDict):
    any_order: list[bool]
    names: NotRequired[list[str]]
    indices: NotRequired[list[Indexed | None]]
    detections: NotRequired[list[Boxes]]
    listed: NotRequired[Size]


class ByTolerance(JudgeFields):
    kind: Literal["tolerance"]
    tolerances: list[Tolerance | None]


class ByBudget(JudgeFields):
    kind: Literal["budget"]
    budgets: list[NoiseLimit]


Options = TypedDict("Options", {
    "plugins": list[Path], "workspace": NotRequired[Size | None], "optimization_level": NotRequired[Size | None],
    "tf32": NotRequired[bool], "hardware_compatibility": NotRequired[str], "timing_cache": NotRequired[bool],
    "cuda_graph": NotRequired[bool],
})  # fmt: skip
Build = TypedDict("Build", {
    "shapes": dict[str, tuple[list[Size], list[Size], list[Size]]], "model_precision": str, "options": Options,
})  # fmt: skip
Trial = TypedDict("Trial", {"rows": bool, "equal": list[Size], "batches": list[Annotated[int, range(1, 2**31)]]})
Head = TypedDict("Head", {
    "environment": Required[Kept], "entries": Required[Annotated[Any, of_type("a list", list)]],
}, total=False)  # fmt: skip


def _check_judge(judge: Any) -> None:
    """Each output has one entry in each list of the judge, and is read in one way."""
    check_of(ByTolerance | ByBudget)(judge)
    kind = "tolerances" if judge["kind"] == "tolerance" else "budgets"
    count = len(judge[kind])
    if judge.get("listed", 0) >= max(count, 1):
        raise Misfit(f"names {judge['listed']}, which is no output", ["listed"])
    for name in ("any_order", "names", "indices"):
        given = len(judge.get(name, ()))
        if given != count and (given or name == "any_order"):  # names and indices are of all outputs or of none
            raise Misfit(f"has {kind} and {name} of unequal length")
    indices = judge.get("indices", ())
    for number, known in enumerate(indices):
        if known is not None and isinstance(known["of"], int) and (known["of"] == number or known["of"] >= count):
            raise Misfit(f"is {known['of']}, which is no other output", ["indices", number, "of"])
    seen = {number for number, known in enumerate(indices) if known is not None}
    for place, boxes in enumerate(judge.get("detections", ())):
        for number in (boxes["boxes"], *boxes["with"]):
            if number >= count or number in seen:
                raise Misfit(f"names {number}, which is no output that is left", ["detections", place])
            seen.add(number)
        if not 0.5 <= boxes["at_least"] <= 1:
            raise wrong(boxes["at_least"], "a share from 0.5 to 1", ["detections", place, "at_least"])


def _check_config(value: dict[str, str]) -> None:
    for key in value:
        if not may_set(key):
            raise Misfit(
                f"sets '{key}', which a bundle may not: of ONNX Runtime's session options it may set those that "
                "choose how the model is computed, and none that can name files"
            )


def may_set(key: str) -> bool:
    """Return whether a bundle may set this session option of ONNX Runtime."""
    return key in SESSION_OPTIONS or key.startswith("mlas.")


@dataclass(frozen=True)
class Entry:
    """One model with one check, to be run by any runtime."""

    name: Annotated[str, _check_folder]
    """Its folder; ONNX's runner wants it to begin with ``test_``."""
    case: str
    exporter: str
    opset: Annotated[int, range(10**6 + 1)]
    precision: str
    check: Annotated[Any, check_of(Literal["accuracy", "specials", "meaning"])]
    source: Annotated[Any, check_of(Source)]
    graph: Annotated[Graph, partial(plain, depth=DEEPEST)]
    inputs: list[str]
    """Names in the order of ``input_0.pb`` and on."""
    judge: Annotated[Any, _check_judge]
    """``compare.judges.judge_from`` makes the judge again."""
    build: Annotated[Any, check_of(Build)]
    """``runtimes.tensorrt.Build.from_dict`` makes the build again; its plugins are paths in the bundle."""
    sets: list[Annotated[Any, check_of(Set)]]
    """For each data set: dims, regime, seed, index, the runtimes that are declared to fail on it (``apart``, each by
    its name, or with the kind of processor on which it is), conditioning (how far rounding moves each output: the
    most, or the mean square of a converted model), whether there are exact outputs. How far each value moves lies
    beside these."""
    runtimes: list[str]
    """The runtimes that the case declares for this model."""
    expected: dict[str, list[Annotated[Any, check_of(Expectation)]]] = field(default_factory=dict)
    """By runtime the declared failures of the whole cell: stage, error, because, fault, place, owed. Those of
    TensorRT's check ``engine`` are under ``engine``."""
    excused: list[Size] = field(default_factory=list)
    """Outputs that may be vacuous."""
    own_code: list[str] = field(default_factory=list)
    """The case's own symbolics and functions that the export used."""
    libraries: list[Path] = field(default_factory=list)
    """Custom-operator libraries for ONNX Runtime, relative to the entry's folder."""
    trial: Annotated[Any, check_of(Trial | None)] = None
    """For TensorRT's check ``engine``: whether there are equal rows, the outputs that have them too, batch sizes. The
    arrays lie in ``engine/``."""
    conversion: Kept | None = None
    config: Annotated[dict[str, str], _check_config] = field(default_factory=dict)
    """ONNX Runtime's session options."""
    command: str | None = None

    @property
    def code(self) -> list[str]:
        """The libraries and plugins that would run, relative to the entry's folder."""
        return list(dict.fromkeys([*self.libraries, *self.build["options"]["plugins"]]))


_FIELDS = frozenset(item.name for item in dataclasses.fields(Entry))


def entry_of(value: Any) -> Entry:
    """The entry that a bundle says. Raises Misfit for the first field that is not what ``Entry`` says; those that it
    does not know are of a later version, and nobody reads them."""
    given = {name: item for name, item in value.items() if name in _FIELDS} if type(value) is dict else value
    check_of(Entry)(given)
    for number, known in enumerate(given["judge"].get("indices", ())):
        if known is not None and isinstance(known["of"], str) and known["of"] not in given["inputs"]:
            raise Misfit(f"is {known['of']}, which is none of its inputs", ["judge", "indices", number, "of"])
    if len(set(given["inputs"])) < len(given["inputs"]):
        raise Misfit("has a name twice", ["inputs"])
    return Entry(**given)


def entries_of(head: object, version: int) -> list[Entry]:
    """The entries of a ``bundle.json``. Raises Misfit for the first thing in it that is not as it has to be."""
    if type(head) is not dict or type(head.get("format")) is not int or head["format"] != version:
        raise Misfit(f"is not a bundle of format {version}; pack it again with this version")
    check_of(Head)(head)
    entries: list[Entry] = []
    seen: dict[tuple[str, ...], int] = {}
    for number, value in enumerate(head["entries"]):
        try:
            entry = entry_of(value)
            cell = (entry.check, entry.case, entry.exporter, str(entry.opset), entry.precision)
            for what, key in (("the name", (entry.name,)), ("the cell", cell)):
                if key in seen:
                    raise Misfit(f"has {what} of entries[{seen[key]}]")
                seen[key] = number
        except Misfit as misfit:
            raise misfit.inside(number).inside("entries") from None
        entries.append(entry)
    return entries
