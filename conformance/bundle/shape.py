"""What ``bundle.json`` has to be like. A bundle may come from anybody: nothing of it is used before it was held
against this, field by field. Needs the standard library, and packaging where versions of packages are named."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from conformance.errors import UserError
from conformance.records.host import is_met

Check = Callable[[Any, str], None]
"""Holds a value, which stands where the second argument says, against what it has to be; raises UserError."""

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


# ---- kinds of values ----------------------------------------------------------------------------------------


def _wrong(where: str, value: Any, wanted: str) -> UserError:
    shown = json.dumps(value) if isinstance(value, (str, int, float, type(None))) else f"a {type(value).__name__}"
    return UserError(f"{where} is {shown if len(shown) <= 60 else shown[:59] + '…'}, not {wanted}")


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise _wrong(where, value, "a text")


def _flag(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise _wrong(where, value, "true or false")


def _number(value: Any, where: str) -> None:
    if type(value) not in (int, float) or (type(value) is int and abs(value) > 2**64):
        raise _wrong(where, value, "a number")


def _finite(value: Any, where: str) -> None:
    _number(value, where)
    if not math.isfinite(value):
        raise _wrong(where, value, "a finite number")


def _integer(low: int, high: int) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not int or not low <= value <= high:
            raise _wrong(where, value, f"a whole number from {low} to {high}")

    return check


def _one_of(*values: Any) -> Check:
    def check(value: Any, where: str) -> None:
        if not any(type(value) is type(known) and value == known for known in values):
            raise _wrong(where, value, " or ".join(map(str, values)))

    return check


def _or_none(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def _list(inner: Check, length: int | None = None) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise _wrong(where, value, "a list" if length is None else f"a list of {length}")
        for index, item in enumerate(value):
            inner(item, f"{where}[{index}]")

    return check


def _by_name(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(where, value, "an object")
        for name, item in value.items():
            inner(item, f"{where}.{name}")

    return check


def _object(needed: Mapping[str, Check], more: Mapping[str, Check] | None = None, *, others: bool = False) -> Check:
    """``others``: whether it may have fields that are not named here, which nobody reads."""
    fields = {**needed, **(more or {})}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(where, value, "an object")
        for name in needed:
            if name not in value:
                raise UserError(f"{where} lacks '{name}'")
        for name, item in value.items():
            if name in fields:
                fields[name](item, f"{where}.{name}")
            elif not others:
                raise UserError(f"{where} has an unknown field '{name}'")

    return check


def _plain(value: Any, where: str, depth: int = 0) -> None:
    """Anything that JSON can hold, which is only kept or shown."""
    if depth > DEEPEST:
        raise UserError(f"{where} has more than {DEEPEST} lists and objects in one another")
    if type(value) is float and not math.isfinite(value):
        raise _wrong(where, value, "a finite number")
    if type(value) is int and abs(value) >= 2**63:
        raise _wrong(where, value, "a number below 2^63")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        _plain(item, where, depth + 1)


# ---- names and paths ----------------------------------------------------------------------------------------


def check_path(value: Any, where: str) -> None:
    """UserError for what is no path to somewhere below a folder: absolute, with ``..``, a backslash or controls."""
    _text(value, where)
    parts = value.split("/")
    if value.startswith("/") or re.match("[A-Za-z]:", value):
        raise _wrong(where, value, "a path inside of the bundle: it is absolute")
    if ".." in parts:
        raise _wrong(where, value, "a path inside of the bundle: it has '..'")
    if "\\" in value or _CONTROLS.search(value) or "" in parts or "." in parts:
        raise _wrong(where, value, "a plain path, of names with / between them")


def _file_name(value: Any, where: str) -> None:
    check_path(value, where)
    if "/" in value or len(value) > 255:
        raise _wrong(where, value, "a name of a folder")


# ---- the fields ---------------------------------------------------------------------------------------------

_SIZE = _integer(0, 2**31 - 1)
_ANY_INTEGER = _integer(-(2**64), 2**64)
_INDICES = _list(_integer(0, 2**31 - 1))
_TEXTS = _list(_text)
_CPU = _or_none(_object({}, {"has": _or_none(_TEXTS), "lacks": _or_none(_TEXTS)}))


def _requirement(value: Any, where: str) -> None:
    _text(value, where)
    try:
        is_met(value, lambda package: None)
    except ValueError:
        raise _wrong(where, value, "a package and its versions") from None


_HOST = _or_none(_object({}, {"has": _TEXTS, "lacks": _TEXTS, "versions": _list(_requirement)}))


def _apart(value: Any, where: str) -> None:
    if not isinstance(value, str):
        _object({"runtime": _text}, {"host": _HOST, "cpu": _CPU})(value, where)


_SET = _object(
    {
        "dims": _by_name(_SIZE), "regime": _text, "seed": _ANY_INTEGER, "index": _ANY_INTEGER, "apart": _list(_apart),
        "conditioning": _or_none(_list(_number)), "exact": _flag,
    }
)  # fmt: skip
_EXPECTATION = _object(
    {
        "stage": _text, "error": _or_none(_text), "because": _text, "fault": _or_none(_text), "place": _text,
        "owed": _flag,
    },
    {"margin": _flag, "host": _HOST, "cpu": _CPU},
)  # fmt: skip
# With NaN for what is allowed, no error would be larger than that.
_TOLERANCE = _object({"rtol": _finite, "atol": _finite}, {"absolute": _flag, "spread": _or_none(_finite)})
_NOISE = _object(
    {"sqnr": _finite, "runtime": _finite, "epsilon": _finite},
    {"smallest": _finite, "cosine": _or_none(_finite), "magnitude": _or_none(_finite)},
)
_JUDGES = {
    "tolerance": ("tolerances", _list(_or_none(_TOLERANCE))),
    "budget": ("budgets", _list(_NOISE)),
}


def _indexed(value: Any, where: str) -> None:
    """The name of an input or the number of an output."""
    (_text if isinstance(value, str) else _integer(0, 2**31 - 1))(value, where)


def _axes(value: Any, where: str) -> None:
    _list(_integer(-64, 63))(value, where)
    if not value:
        raise _wrong(where, value, "a list of axes")


_BOXES = _object({"boxes": _integer(0, 2**31 - 1), "with": _list(_integer(0, 2**31 - 1)), "at_least": _finite})
_READING = {
    "names": _list(_text), "indices": _list(_or_none(_object({"of": _indexed, "axis": _axes}))),
    "detections": _list(_BOXES),
}  # fmt: skip
"""How outputs are read; bundles of earlier versions say nothing of it."""
_LISTED = {"listed": _integer(0, 2**31 - 1)}


def _check_boxes(value: Any, outputs: int, where: str) -> None:
    """Each output stands in one set of rows at most, and holds no indices."""
    indices = value.get("indices", ())
    seen = {number for number, known in enumerate(indices) if known is not None}
    for place, known in enumerate(value.get("detections", ())):
        for number in (known["boxes"], *known["with"]):
            if number >= outputs or number in seen:
                raise UserError(f"{where}.detections[{place}] names {number}, which is no output that is left")
            seen.add(number)
        if not 0.5 <= known["at_least"] <= 1:
            raise _wrong(f"{where}.detections[{place}].at_least", known["at_least"], "a share from 0.5 to 1")


def _is_beyond(known: Any, outputs: int) -> bool:
    return known is not None and isinstance(known["of"], int) and known["of"] >= outputs


def _judge(value: Any, where: str) -> None:
    _object({"kind": _one_of(*_JUDGES)}, others=True)(value, where)
    field, limits = _JUDGES[value["kind"]]
    _object({"kind": _text, field: limits, "any_order": _list(_flag)}, _READING | _LISTED)(value, where)
    if value.get("listed", 0) >= max(len(value[field]), 1):
        raise UserError(f"{where}.listed names {value['listed']}, which is no output")
    if len(value[field]) != len(value["any_order"]):
        raise UserError(f"{where}: {field} and any_order are of unequal length")
    for name in ("names", "indices"):  # one for each output, or none at all
        if len(value.get(name, ())) not in (0, len(value[field])):
            raise UserError(f"{where}: {field} and {name} are of unequal length")
    for number, known in enumerate(value.get("indices", ())):
        if (known is not None and known["of"] == number) or _is_beyond(known, len(value[field])):
            raise UserError(f"{where}.indices[{number}].of is {known['of']}, which is no other output")
    _check_boxes(value, len(value[field]), where)


_OPTIONS = _object(
    {"plugins": _list(check_path)},
    {
        "workspace": _or_none(_SIZE), "optimization_level": _or_none(_SIZE), "tf32": _flag,
        "hardware_compatibility": _text, "timing_cache": _flag, "cuda_graph": _flag,
    },
)  # fmt: skip
_BUILD = _object(
    {"shapes": _by_name(_list(_list(_SIZE), 3)), "model_precision": _text, "options": _OPTIONS},
)


def _config(value: Any, where: str) -> None:
    _by_name(_text)(value, where)
    for key in value:
        if not may_set(key):
            raise UserError(
                f"{where} sets '{key}', which a bundle may not: of ONNX Runtime's session options it may set those "
                "that choose how the model is computed, and none that can name files"
            )


def may_set(key: str) -> bool:
    """Whether a bundle may set this session option of ONNX Runtime."""
    return key in SESSION_OPTIONS or key.startswith("mlas.")


def _graph(value: Any, where: str) -> None:
    known = {"opset": _or_none(_SIZE), "nodes": _or_none(_by_name(_SIZE)), "sha": _or_none(_text)}
    _object({}, known, others=True)(value, where)
    _plain(value, where)


def _anything(value: Any, where: str) -> None:
    _by_name(lambda item, place: _plain(item, place))(value, where)


_ENTRY = _object(
    {
        "name": _file_name, "case": _text, "exporter": _text, "opset": _integer(0, 10**6), "precision": _text,
        "check": _one_of("accuracy", "specials"),
        "source": _object({"file": _or_none(_text), "line": _or_none(_SIZE)}), "graph": _graph, "inputs": _TEXTS,
        "judge": _judge, "build": _BUILD, "sets": _list(_SET), "runtimes": _TEXTS,
    },
    {
        "expected": _by_name(_list(_EXPECTATION)), "excused": _INDICES, "own_code": _TEXTS,
        "libraries": _list(check_path), "config": _config, "command": _or_none(_text),
        "trial": _or_none(_object({"rows": _flag, "equal": _INDICES, "batches": _list(_integer(1, 2**31 - 1))})),
        "conversion": _or_none(_anything),
    },
    others=True,  # those of a later version that an earlier need not know
)  # fmt: skip


def check_entry(entry: Any, where: str) -> None:
    """Raises UserError for the first field that is not what ``layout.Entry`` says."""
    _ENTRY(entry, where)
    for number, known in enumerate(entry["judge"].get("indices", ())):
        if known is not None and isinstance(known["of"], str) and known["of"] not in entry["inputs"]:
            raise UserError(f"{where}.judge.indices[{number}].of is {known['of']}, which is none of its inputs")
    if len(set(entry["inputs"])) < len(entry["inputs"]):
        raise UserError(f"{where}.inputs has a name twice")


def check_head(head: Any, version: int) -> None:
    """Raises UserError for the first thing in ``bundle.json`` that is not as it has to be; the text begins with its
    place in the file."""
    if not isinstance(head, dict) or type(head.get("format")) is not int or head["format"] != version:
        raise UserError(f"is not a bundle of format {version}; pack it again with this version")
    _anything(head.get("environment"), "environment")
    _list(check_entry)(head.get("entries"), "entries")
    seen: dict[tuple[Any, ...], int] = {}
    for index, entry in enumerate(head["entries"]):
        cell = tuple(entry[field] for field in ("check", "case", "exporter", "opset", "precision"))
        for key in (("the name", entry["name"]), ("the cell", *cell)):
            if key in seen:
                raise UserError(f"entries[{index}] has {key[0]} of entries[{seen[key]}]")
            seen[key] = index
