"""A module's case: its inputs, the dims that really vary, and what forward returns, each found by running it: the
paths to compare, and why the rest cannot be."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from conformance.case.files.dims import Range, TensorType
from conformance.case.files.inputs import Input
from conformance.case.files.made import part_of, value_of
from conformance.case.files.python import Folder
from conformance.cells.file_sizes import SECONDS, ranges
from conformance.extras.draft.arguments import describe_refusal, describe_with_place, place_of
from conformance.extras.draft.guessed_inputs import (
    PADDING,
    SECONDS_OF_TYPES,
    Guess,
    Tree,
    called,
    fitting,
    forward_parameters,
    names_of,
    no_input,
    padding_of,
    parameters,
    sizes_of,
)
from conformance.extras.draft.whole_numbers import with_numbers
from conformance.process.errors import Stopped, attempt, did_you_mean, noting, or_else, shown, works

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Request:
    """A module by its name, what it is made with, and the types of inputs that are known."""

    folder: Path
    """Where the case file is to lie."""
    module: str
    given: Mapping[str, object]
    """As in a case file."""
    inputs: Mapping[str, str]
    submodule: str | None = None
    dims: Mapping[str, str] = field(default_factory=dict)
    """Ranges of dims that are known."""
    typed: tuple[str, ...] = ()
    """The command that asks for it, which errors have typed again with more."""


@dataclass(frozen=True)
class Draft:
    """Hold what was found of a module."""

    inputs: Mapping[str, Tree]
    keywords: frozenset[str]
    """The inputs that are passed by keyword."""
    dims: Mapping[str, str]
    held: Mapping[str, int]
    """Dims at whose only size the module runs."""
    returns: tuple[str, ...]
    """What is compared of what forward returns, where that is not of tensors alone."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What forward returns besides, by its path, and why it is not compared."""


def draft_module(request: Request, seconds: float = SECONDS_OF_TYPES) -> Draft:
    """Build the module, and run it until its inputs are known, for so many seconds.

    Raises Stopped with what could not be done.
    """
    with building(request) as module:
        return draft_of(module, request.inputs, request.dims, seconds)[0]


@contextmanager
def building(request: Request) -> Iterator[nn.Module]:
    """Yield the module of a request, with the Python beside the case at hand and without gradients."""
    import torch

    torch.manual_seed(0)
    with Folder.of(request.folder).active() as folder, torch.no_grad():
        module = _build(request, folder)
        with noting(partial(_refuse_use, request)):
            yield module


def _refuse_use(request: Request, error: Exception) -> None:
    """Raise Stopped with what the code of the module raises, wherever it is used: at its own line."""
    if not isinstance(error, Stopped) and place_of(error):
        text = f"{request.module} cannot be drafted, as it raises {describe_with_place(error, request.folder)}"
        text = f"{text}; correct it, or write the case by hand"
        raise Stopped("declare", type(error).__name__, text, "case") from error


def draft_of(
    module: nn.Module, inputs: Mapping[str, str], dims: Mapping[str, str], seconds: float = SECONDS_OF_TYPES
) -> tuple[Draft, dict[str, int]]:
    """Draft a module, and find sizes of all its dims at which it runs.

    ``inputs`` are types that are known, and ``dims`` ranges; ``seconds`` how long types are tried.
    """
    guesses, keywords, sizes = fitted(module, inputs, dims, seconds)
    return tried(module, guesses, keywords, sizes, dims), sizes


def fitted(
    module: nn.Module, inputs: Mapping[str, str], dims: Mapping[str, str], seconds: float = SECONDS_OF_TYPES
) -> tuple[dict[str, Guess], frozenset[str], dict[str, int]]:
    """Return types of all inputs with which a module runs, which of them are passed by keyword, and sizes. Raises
    Stopped where there are none, or no input has such a dim."""
    known_sizes = {name: _first_size(name, said) for name, said in dims.items()}
    known = {name: _read_type(module, name, text) for name, text in inputs.items()}
    needed = parameters(module) if not known or _more(module, known) else iter([{}])
    guesses, keywords, sizes = _fitting(module, needed, known, known_sizes, seconds)
    odd = next((name for name in dims if name not in sizes), None)
    if odd is not None:
        raise no_input(f"--dim {odd}: no input has a dim of that name{did_you_mean(odd, sizes)}")
    return guesses, keywords, sizes


def _fitting(
    module: nn.Module,
    needed: Iterator[dict[str, bool]],
    known: Mapping[str, Guess],
    sizes: Mapping[str, int],
    seconds: float,
) -> tuple[dict[str, Guess], frozenset[str], dict[str, int]]:
    """Return types of the first of these groups of inputs with which the module runs, the names of those that are
    passed by keyword, and sizes. Raises Stopped as the first group was refused where none fits."""
    refused: Exception | None = None
    deadline = time.monotonic() + seconds
    for group in needed:
        wanted = {**group, **dict.fromkeys(known, False)}
        keywords = frozenset(name for name in wanted if wanted[name])

        def call(inputs: Mapping[str, Guess], at: Mapping[str, int], by_keyword: frozenset[str] = keywords) -> object:
            return called(module, inputs, by_keyword, at)

        fit = attempt(partial(fitting, list(wanted), sizes_of(module), known, call, sizes, deadline))
        if not isinstance(fit, Exception):
            return fit[0], keywords, fit[1]
        refused = refused or fit
    assert refused is not None
    raise refused


def _first_size(name: str, said: str) -> int:
    """A size of a range that the user gives: its second, as a size of 1 is often another thing."""
    try:
        found = Range.parse(said)
        sizes = list(found.values({}))[:2]
    except (ValueError, NameError):
        how = f"write --dim {name}=1..8, or {name}=16..64 step 16"
        raise no_input(f"--dim {name}: {shown(said)} is no range of sizes; {how}") from None
    return int(sizes[-1])


def tried(
    module: nn.Module,
    inputs: Mapping[str, Tree],
    keywords: frozenset[str],
    sizes: dict[str, int],
    given: Mapping[str, str] = MappingProxyType({}),
) -> Draft:
    """A draft of inputs with which the module runs at these sizes: which numbers it takes, and which of its dims
    vary, is tried."""
    inputs = with_numbers(module, inputs, keywords, sizes)

    def runs(other: Mapping[str, int]) -> bool:
        return works(lambda: called(module, inputs, keywords, other))

    free = [name for name in names_of(inputs) if name not in given]
    dims = ranges(free, runs, time.monotonic() + SECONDS, sizes)
    dims |= given
    held = {name: int(said) for name, said in dims.items() if ".." not in said}
    varying = {name: said for name, said in dims.items() if ".." in said}
    result = called(module, inputs, keywords, sizes)
    others = sizes | {name: other_size(said, sizes[name]) for name, said in varying.items()}
    found = returned(result, called(module, inputs, keywords, others) if varying and runs(others) else result)
    return Draft(inputs, keywords, varying, held, found.paths, found.left_out)


def other_size(said: str, size: int) -> int:
    """Another size of a dim, within its range."""
    sizes = list(Range.parse(said).values({}))
    return sizes[-1] if size != sizes[-1] else sizes[0]


def _read_type(module: nn.Module, name: str, text: str) -> Guess:
    """The type that the user says an input has; Stopped where it is none, or forward takes no such input."""
    taken = forward_parameters(module)
    if (
        taken
        and name not in taken
        and not any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in taken.values())
    ):
        raise no_input(f"forward takes no input {shown(name)}{did_you_mean(name, taken)}")
    try:
        kind, values = _typed(text)
    except ValueError as error:
        raise no_input(f"{name}: {_first_problem(error)}") from None
    sizes = list(map(str, kind.shape))
    if not all(re.fullmatch(r"\w+", size) for size in sizes):
        raise no_input(f"{name}: sizes are numbers or names here, as in float32[batch, 8]")
    whole = kind.dtype.startswith(("int", "uint"))
    if values is None and "mask" in name and (whole or kind.dtype == "bool"):
        return Guess(f"{kind.dtype}[{', '.join(sizes)}]", why=PADDING, values=padding_of(name))
    return Guess(f"{kind.dtype}[{', '.join(sizes)}]", values=values, open=whole and values is None)


def _typed(text: str) -> tuple[TensorType, Mapping[str, object] | None]:
    """The type of an input, and where its values come from if that is said: ``--input`` has the type alone, or a
    mapping as in a case file. ValueError for what is neither."""
    if not text.lstrip().startswith("{"):
        return TensorType.parse(text), None
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    quoted = re.sub(r"(\btype:\s*)(\w+\[[^\]\"']*\])", r'\1"\2"', text)
    try:
        said = YAML(typ="safe", pure=True).load(quoted)
    except YAMLError:
        how = "{type: int64[batch], values: {integers: {low: 0, high: 9}}}"
        raise ValueError(f"{shown(text)} is no YAML; write it as in a case file: {how}") from None
    kind, values = Input.model_validate(said).type, said.get("values")
    return kind, {"python": values} if isinstance(values, str) else values


def _first_problem(error: ValueError) -> str:
    """Return what is wrong, in a line: pydantic's errors have several."""
    problems = error.errors() if isinstance(error, ValidationError) else None
    return str(error) if problems is None else str(problems[0]["msg"]).removeprefix("Value error, ")


def _more(module: nn.Module, known: Mapping[str, Guess]) -> bool:
    """Return whether forward needs inputs besides those that are known."""
    try:
        needed = next(parameters(module))
    except Stopped:
        return False
    return not all(needed.values()) and not needed.keys() <= known.keys()


def _build(request: Request, folder: Folder) -> nn.Module:
    import torch

    kind = folder.resolve(request.module)
    with noting(partial(refuse_to_build, request, kind)):
        module = kind(**{name: value_of(value, folder) for name, value in request.given.items()})
        if not isinstance(module, torch.nn.Module):
            text = f"{request.module} gave a {type(module).__name__}, not a torch.nn.Module"
            raise Stopped("declare", "TypeError", text, "case")
        module = module if request.submodule is None else part_of(module, request.submodule)
        module.eval()  # which a class of its own may have return nothing
        return module


def refuse_to_build(request: Request, kind: object, error: Exception) -> None:
    """Raise Stopped with why a class cannot be made, and what to type."""
    if not isinstance(error, Stopped):
        text = describe_refusal(error, request.module, kind, request.given, request.typed, request.folder)
        raise Stopped("declare", type(error).__name__, text, "case") from error


def configuration(folder: Path, module: str) -> str:
    """The name of the class that a module's configuration is of, as transformers' classes say it."""
    with Folder.of(folder).active() as own:
        known = class_of_configuration(own.resolve(module))
    if known is None:
        text = f"{module} does not say of which class its configuration is (config_class); give it with --with"
        raise Stopped("declare", "MissingName", text, "case")
    return f"{known.__module__}.{known.__qualname__}"


def class_of_configuration(kind: Any) -> type | None:
    """Return the class of the configuration of a module's class, as those of transformers say it; None for others."""
    known = or_else(None, lambda: kind.config_class)
    return known if isinstance(known, type) else None


DEPTH = 8
"""How deep objects are looked into."""


@dataclass(frozen=True)
class Returned:
    """Hold what is to be compared."""

    paths: tuple[str, ...] = ()
    """As ``returns:`` has them; none where forward returns tensors in tuples, lists and mappings alone."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """By path, why something is not compared."""


@dataclass(frozen=True)
class _Leaf:
    path: str
    value: object
    why: str = ""
    """Why it is not compared."""


def returned(result: object, other: object) -> Returned:
    """Find what of a result can be compared. ``other`` is that at other sizes: a number that is the same there says
    nothing of a model. Stopped at ``declare`` where nothing can be compared."""
    import torch

    leaves = [*_leaves(result, "", set(), 0)]
    others = {leaf.path: leaf.value for leaf in _leaves(other, "", set(), 0)}
    left_out = {leaf.path: leaf.why for leaf in leaves if leaf.why}
    for leaf in leaves:
        if isinstance(leaf.value, (int, float)) and others.get(leaf.path) == leaf.value:
            left_out[leaf.path] = f"the same at all sizes that were tried ({leaf.value})"
    whole = all(isinstance(leaf.value, torch.Tensor) for leaf in leaves)
    if leaves and whole and not left_out and _is_plain(result):
        return Returned()
    paths = tuple(leaf.path for leaf in leaves if leaf.path and leaf.path not in left_out)
    if not paths:
        text = f"forward returns a {type(result).__name__} with no tensor in it that can be compared"
        raise Stopped("declare", "NoTensor", f"{text}{_because(left_out)}; write the case by hand", "case")
    return Returned(paths, left_out)


def _because(left_out: Mapping[str, str]) -> str:
    return "".join(f"; {path}: {why}" if path else f": {why}" for path, why in [*left_out.items()][:3])


def _leaves(value: object, path: str, inside: set[int], depth: int) -> Iterator[_Leaf]:
    """The tensors and numbers in a result, and what else there is with the reason why that is left out."""
    import torch

    if value is None or callable(value) or isinstance(value, (torch.dtype, torch.device, torch.nn.Module)):
        return
    if isinstance(value, torch.Tensor):
        yield _Leaf(path, value, _no_array(value))
    elif isinstance(value, (bool, int, float)):
        yield _Leaf(path, value)
    elif id(value) in inside or depth > DEPTH:
        yield _Leaf(path, None, "it is inside of itself" if id(value) in inside else "it lies too deep")
    elif (named := _parts(value)) is None:
        yield _Leaf(path, None, f"a {type(value).__name__}, of which ONNX has no tensor")
    else:
        for name, inner in named:
            within = f"{path}.{name}" if path else str(name)
            if re.fullmatch(r"\w+", str(name)):
                yield from _leaves(inner, within, {*inside, id(value)}, depth + 1)
            elif inner is not None:
                yield _Leaf(within, None, "a path cannot name it")


def _parts(value: object) -> Iterator[tuple[object, object]] | None:
    """Return what an object holds, by name; None where nothing can be told of it."""
    if isinstance(value, Mapping):
        return iter(or_else([], lambda: [*value.items()]))
    if isinstance(value, (list, tuple)):
        return iter(enumerate(value))
    slots = getattr(type(value), "__slots__", ())
    names = [slots] if isinstance(slots, str) else [*slots]
    own = {name: or_else(None, partial(getattr, value, name)) for name in names} | getattr(value, "__dict__", {})
    return iter((name, inner) for name, inner in own.items() if not str(name).startswith("_")) if own else None


def _no_array(tensor: Tensor) -> str:
    """Say why a tensor cannot be compared; nothing where it can."""
    import torch

    if tensor.is_quantized:
        return "a quantized tensor; forward may return its dequantize()"
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}; forward may return its to_dense()"
    if tensor.is_complex():
        return "complex numbers, of which ONNX has no tensors; forward may return torch.view_as_real of them"
    return "" if works(lambda: tensor.detach().numpy()) else f"NumPy has no {tensor.dtype}"


def _is_plain(value: Any) -> bool:
    """Return whether it is of tuples, lists and mappings that all exporters know."""
    import torch

    if value is None or isinstance(value, torch.Tensor):
        return True
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    return (type(value) in (list, tuple) or hasattr(value, "_fields")) and all(map(_is_plain, value))
