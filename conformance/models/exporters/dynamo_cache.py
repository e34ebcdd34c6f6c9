"""Make repeated dynamo exports fast without changing what they produce.

Why
    In a warm process, `torch.onnx.export(..., dynamo=True)` of a one-layer module spends three
    quarters of its time on work that does not depend on the module. A suite exports hundreds.

What was measured
    `asinh(Linear(x))`, torch 2.15, onnxscript 0.7, two cores; median of 15 exports, changes added
    one after the other, the same bytes each time:

    ========================================  ======  =============================================
    plain torch                               408 ms
    list torchlib's functions once            198 ms  plain parses their source on every export
    infer each function's signature once      139 ms  plain reads 500 functions' annotations again
    look for composite operators in C++ once   95 ms  plain does so 64 times an export, now twice
    ========================================  ======  =============================================

Why it is safe
    No registry is kept. Every export still builds its own: `ONNXRegistry.from_torchlib` runs in
    full, looks up every operator and selects by opset, and a translation table goes into that
    registry alone. What is remembered describes one function object and nothing around it:

    * The list of torchlib's functions is used again only while the very same objects are registered
      under the same names in the same order. Its entries are frozen.
    * A signature is remembered for torchlib's own functions only, never for those that a user's
      translation table adds, and each use gets a copy.
    * Composite operators are not remembered at all. Before walking each of some thirty namespaces
      torch asks C++ for operators that Python has not seen yet; here it asks once and then walks
      them all. An operator defined between two exports is seen by the second.

    One thing goes unnoticed: annotations of a torchlib function edited in place after an export.

    All that is replaced is private to torch or onnxscript. Where the torch version is another than
    the one this was written against, or a replaced function is missing or takes other parameters,
    `install` replaces nothing and says why. Exports are then as correct, and slow.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx_ir.schemas import OpSignature
    from onnxscript.function_libs.torch_lib.registration import Registry
    from torch._ops import OperatorBase

OFF_SWITCH = "CONFORMANCE_DYNAMO_CACHE"
TORCH_VERSION = "2.15"

Replacement = tuple[ModuleType, str, object]  # in this module, under this name, goes this object

_originals: list[Replacement] = []


class _UnknownInternals(Exception):
    """Torch or onnxscript is not built as this module expects; the message says where."""


def install() -> str | None:
    """Make dynamo exports in this process fast; calling it again changes nothing.

    Returns None when exports are fast from now on, else one line that says why they stay slow.
    """
    if _originals:
        return None
    if os.environ.get(OFF_SWITCH) == "0":
        return f"dynamo cache: switched off by {OFF_SWITCH}=0"
    try:
        replacements = _replacements()
    except (ImportError, AttributeError, _UnknownInternals) as error:
        return f"dynamo cache: not used, {error}"
    for module, name, replacement in replacements:
        _originals.append((module, name, getattr(module, name)))
        setattr(module, name, replacement)
    return None


def uninstall() -> None:
    """Put back what `install` replaced, and forget everything remembered."""
    while _originals:
        module, name, original = _originals.pop()
        setattr(module, name, original)


def _replacements() -> list[Replacement]:
    """Check all internals before any is replaced, so that a refusal leaves nothing behind."""
    import torch

    if torch.__version__.split(".")[:2] != TORCH_VERSION.split("."):
        raise _UnknownInternals(f"torch is {torch.__version__}, known is {TORCH_VERSION}")

    from onnxscript._framework_apis import torch_2_11 as onnxscript_apis
    from onnxscript.function_libs.torch_lib.registration import default_registry
    from torch._export import utils as export_utils
    from torch.export import decomp_utils, exported_program
    from torch.onnx._internal.exporter import _schemas

    # Dynamic, as type checkers do not see the modules that this one imports.
    registration: Any = importlib.import_module("torch.onnx._internal.exporter._registration")

    list_functions = onnxscript_apis.get_torchlib_ops
    infer_signature = _schemas.op_signature_from_function
    materialize = export_utils._materialize_cpp_cia_ops
    collect = export_utils._collect_all_valid_cia_ops

    _check_parameters(list_functions)
    _check_parameters(infer_signature, "func", "domain", "name", "overload", "since_version")
    _check_parameters(materialize)
    _check_parameters(collect)
    for user, name, used in (
        (registration.onnxscript_apis, "get_torchlib_ops", list_functions),
        (registration._schemas, "op_signature_from_function", infer_signature),
        (decomp_utils, "_collect_all_valid_cia_ops", collect),
        (exported_program, "_collect_all_valid_cia_ops", collect),
    ):
        if getattr(user, name) is not used:
            raise _UnknownInternals(f"{user!r} has a {name} of its own")

    list_once, infer_once = _remember_torchlib(list_functions, infer_signature, default_registry)
    materialize_outside, collect_together = _materialize_once(materialize, collect)
    return [
        (onnxscript_apis, "get_torchlib_ops", list_once),
        (_schemas, "op_signature_from_function", infer_once),
        (export_utils, "_materialize_cpp_cia_ops", materialize_outside),
        # Both import the function by name, so replacing it in export_utils would not reach them.
        (decomp_utils, "_collect_all_valid_cia_ops", collect_together),
        (exported_program, "_collect_all_valid_cia_ops", collect_together),
    ]


def _check_parameters(function: Callable[..., object], *expected: str) -> None:
    """Refuse a function that takes other parameters than the ones its replacement passes on."""
    parameters = tuple(inspect.signature(function).parameters)
    if parameters != expected:
        raise _UnknownInternals(f"{function.__qualname__} takes {parameters}, known is {expected}")


def _remember_torchlib(
    list_functions: Callable[[], list[Any]],
    infer_signature: Callable[..., OpSignature],
    registry: Registry,
) -> tuple[Callable[[], list[object]], Callable[..., OpSignature]]:
    """Return both functions with a memory, valid while torchlib's `registry` stays as it is."""
    registered: list[tuple[object, ...]] = []
    listed: list[Any] = []
    # By the function's id, since not every callable can be hashed; `listed` keeps the ids valid.
    signatures: dict[int, dict[tuple[object, ...], OpSignature]] = {}

    def snapshot() -> list[tuple[object, ...]]:
        return [(name, *entry.overloads, None, *entry.complex) for name, entry in registry.items()]

    def get_torchlib_ops() -> list[object]:
        nonlocal registered, listed, signatures
        if not listed or snapshot() != registered:
            listed = list_functions()  # the first call also imports, and so fills, the registry
            registered = snapshot()
            signatures = {id(entry.function): {} for entry in listed}
        return list(listed)

    def op_signature_from_function(
        func: Callable[..., object],
        domain: str,
        name: str | None = None,
        overload: str = "",
        *,
        since_version: int = 1,
    ) -> OpSignature:
        known = signatures.get(id(func))
        arguments = (domain, name, overload, since_version)
        if known is not None and arguments in known:
            signature = known[arguments]
        else:
            signature = infer_signature(func, domain, name, overload, since_version=since_version)
            if known is None:  # not torchlib's: from a translation table, say
                return signature
            known[arguments] = signature
        return dataclasses.replace(signature, params=list(signature.params), outputs=list(signature.outputs))

    return get_torchlib_ops, op_signature_from_function


def _materialize_once(
    materialize: Callable[[], None], collect: Callable[[], set[OperatorBase]]
) -> tuple[Callable[[], None], Callable[[], set[OperatorBase]]]:
    """Return both functions such that one collection materializes once, at its start."""
    collecting = threading.local()

    def _materialize_cpp_cia_ops() -> None:
        if not getattr(collecting, "now", False):
            materialize()

    def _collect_all_valid_cia_ops() -> set[OperatorBase]:
        materialize()
        collecting.now = True
        try:
            return collect()
        finally:
            collecting.now = False

    return _materialize_cpp_cia_ops, _collect_all_valid_cia_ops
