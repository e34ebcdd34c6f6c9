"""The inputs of a case by an example of each: tensors that somebody passes in place of types."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from conformance.case.files.built import Built
from conformance.extras.draft.case_text import input_of
from conformance.extras.draft.drafting import Draft
from conformance.extras.draft.recorded_inputs import RecordedCall, call_of, read_value, types_of
from conformance.extras.draft.submodules import from_calls
from conformance.process.errors import Stopped, UserError, UserTypeError, attempt, did_you_mean, shown, summarize

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module


def are_examples(inputs: object) -> bool:
    """Return whether inputs are tensors, also inside of lists and mappings, rather than types.

    Raises UserError where only some of them are, and UserTypeError for what is no mapping.
    """
    if not isinstance(inputs, Mapping):
        how = 'as in inputs={"x": x}; without names they follow the module: conformance.check(module, x, y)'
        raise UserTypeError(f"inputs has to be a mapping from names, not {type(inputs).__name__}, {how}")
    example = next((name for name, said in inputs.items() if _holds_tensor(said)), None)
    others = (name for name, said in inputs.items() if isinstance(said, (str, dict)) and not _holds_tensor(said))
    declared = next(others, None)
    if example is not None and declared is not None:
        how = f'pass tensors for all, or write all out, as in inputs={{"{example}": "float32[batch, 8]", ...}}'
        raise UserError(f"inputs: {example} is an example, and {declared} is declared; {how}")
    return example is not None


def _holds_tensor(value: object) -> bool:
    """Return whether there is a tensor or an array in a value. PyTorch may be missing, which a file does not need."""
    if isinstance(value, (Mapping, list, tuple)):
        return any(map(_holds_tensor, value.values() if isinstance(value, Mapping) else value))
    return hasattr(value, "dtype") and hasattr(value, "shape")


def example_call(module: Module, tensors: tuple[object, ...], inputs: Mapping[str, object]) -> RecordedCall:
    """Return what forward is called with: ``tensors`` by their position, ``inputs`` by the names of its parameters,
    or in their order where none of them has such a name. Arrays of NumPy stand for tensors.

    Raises UserTypeError where forward cannot be called so, and UserError for an example that a case cannot say.
    """
    signature = inspect.signature(module.forward)
    parameters = signature.parameters
    own = f"{type(module).__name__}.forward"
    converted = attempt(lambda: _as_tensors((tensors, dict(inputs))))
    if isinstance(converted, Exception):
        raise UserTypeError(f"an example cannot be made a tensor: {summarize(converted)}")
    tensors, inputs = converted
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    odd = [name for name in inputs if name not in parameters and not any_name]
    in_order = bool(odd) and not tensors and len(odd) == len(inputs)
    if odd and not in_order:
        raise UserTypeError(f"inputs: {own} takes no {shown(odd[0])}{did_you_mean(odd[0], parameters)}")
    args, kwargs = (tuple(inputs.values()), {}) if in_order else (tensors, inputs)
    bound = attempt(lambda: signature.bind(*args, **kwargs))
    if isinstance(bound, Exception):
        taken = [name if one.default is one.empty else f"{name}=..." for name, one in parameters.items()]
        how = f"give an example of each: conformance.check(module, {', '.join(taken)})"
        raise UserTypeError(f"{own} takes ({', '.join(taken)}): {bound}; {how}")
    if in_order:
        call = attempt(
            lambda: RecordedCall({name: read_value(name, value) for name, value in inputs.items()}, frozenset())
        )
    else:
        call = attempt(lambda: call_of(module, bound.args, bound.kwargs))
    if isinstance(call, Stopped):
        raise UserError(call.reason)
    if isinstance(call, Exception):
        raise call
    return call


def draft_example(given: Built, call: RecordedCall, mode: str) -> Draft:
    """Draft the case of a module that is called so: of each tensor the first size may vary, and values are drawn
    from a range that the example shows. Sets the seed of PyTorch's random numbers.

    Raises UserError where the module cannot be copied, or does not run with values that are drawn.
    """
    import torch

    module = attempt(given.module)
    if isinstance(module, Exception):
        raise UserError(f"the module cannot be copied ({summarize(module)})")
    with torch.no_grad():
        torch.manual_seed(0)
        draft = from_calls(module.train(mode == "train"), [call], axes=1)
    if isinstance(draft, str):
        plain = Draft(types_of([call], (), axes=1)[0], call.keywords, {}, {}, ())
        how = f"say types and values yourself, beginning with inputs={keys_of(plain, {})['inputs']!r}"
        raise UserError(f"no case can be made of the examples: {draft}; {how}")
    return draft


def keys_of(draft: Draft, dims: object) -> dict[str, object]:
    """Return inputs, dims and what is compared of what forward returns, as a case says them. ``dims`` are ranges that
    are given, which go before those of the draft."""
    given = dims if isinstance(dims, Mapping) else {}
    held = {name: size for name, size in draft.held.items() if name not in given}
    keys = {
        "inputs": {name: input_of(draft, name, held) for name in draft.inputs},
        "dims": {**draft.dims, **given} if isinstance(dims, Mapping) else dims,
    }
    return keys | ({"returns": [*draft.returns]} if draft.returns else {})


def assumed(draft: Draft, keys: Mapping[str, object]) -> Iterator[str]:
    """Yield lines about what a draft assumes, as the arguments that would say the same."""
    said = ", ".join(f"{name}={value!r}" for name, value in keys.items() if value)
    fixed = "" if draft.dims else "; no size varies, as the module runs at no other first size that was tried"
    yield f"assumed of the examples: {said}{fixed}; to say otherwise, pass these keys in place of the examples"
    for path, why in draft.left_out.items():
        yield f"not compared: {path}: {why}"


def _as_tensors(value: object) -> Any:
    """Return examples with tensors in place of NumPy's arrays."""
    import numpy as np
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: torch.tensor(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf, value)


OPEN = 8
"""How far above its lowest size a dim goes that the program bounds only from below."""


def case_of_program(program: ExportedProgram, inputs: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return ``inputs`` and ``dims`` of a case, as the program's own signature has them; of ``inputs`` that are given
    the dims that these name.

    Raises UserError where forward takes more than tensors, or whole numbers of which nothing says the range.
    """
    if inputs is not None:
        named = {*re.findall(r"\w+", str(inputs))}
        return {"dims": {name: sizes for name, sizes in _dims(program).items() if name in named}}
    signature = program.module_call_graph[0].signature
    by_position, by_keyword = signature.in_spec.children()
    if not all(spec.is_leaf() for spec in (*by_position.children(), *by_keyword.children())):
        raise UserError("the program takes lists or mappings of tensors; give the module and its inputs instead")
    names = list(program.graph_signature.user_inputs)
    keywords = dict(zip(names[len(by_position.children()) :], by_keyword.context or (), strict=True))
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[str, object] = {}
    for name in names:
        value: Any = values.get(name)
        if not hasattr(value, "shape"):
            raise UserError(f"{name} is no tensor; give the module and its inputs instead")
        dtype = str(value.dtype).removeprefix("torch.")
        if not value.dtype.is_floating_point and dtype != "bool":
            text = f"{name} holds whole numbers ({dtype}), and the program does not say which: give inputs"
            raise UserError(f"{text}, such as inputs={{{name!r}: {{'type': ..., 'values': {{'integers': ...}}}}}}")
        entry = {"type": f"{dtype}[{', '.join(map(str, value.shape))}]"}
        found[name] = {**entry, "as": keywords[name]} if name in keywords else entry
    return {"inputs": found, "dims": _dims(program)}


def _dims(program: ExportedProgram) -> dict[str, str]:
    """Return the range of each size that is open."""
    dims: dict[str, str] = {}
    for symbol, bounds in program.range_constraints.items():
        if symbol.is_symbol:
            low = int(bounds.lower)
            high = int(bounds.upper) if bounds.upper.is_finite else low + OPEN
            dims[str(symbol)] = f"{low}..{min(high, 2**31 - 1)}"
    return dims
