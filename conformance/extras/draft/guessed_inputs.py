"""Guess what a module's forward takes, and try it.

The names of its parameters and the sizes of its weights suggest it.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from conformance.case.draw.value_regimes import make
from conformance.case.files.dims import DTYPES
from conformance.case.files.inputs import Input
from conformance.extras.draft.arguments import place_of
from conformance.process.errors import Stopped, attempt, or_else, summarize

if TYPE_CHECKING:
    from torch import Tensor, nn

T = TypeVar("T")

SECONDS_OF_TYPES = 60.0
"""How long types are tried for the inputs of a module."""
BASE = {"batch": 2, "seq": 5, "l": 16, "d": 8, "h": 32, "w": 32}
"""Sizes that dims have at first."""
IMAGES = (32, 64, 224, 96, 16, 8)
"""Sides of images and volumes that are tried."""
PADDING = "a padding mask, no row of which is hidden whole"
MOST = 2**23
"""Numbers of an input that is tried: larger ones take the time of all others."""
_IDS = re.compile(r"(^|_)(ids?|idx|index|indices|tokens?)$")
_EDGES = re.compile(r"(^|_)edge_(index|indices|list)$")
_IMAGE = re.compile(r"(^|_)(img|image|picture|pixel_value)s?$")


def no_input(text: str) -> Stopped:
    """Return how a draft ends of whose inputs something is not known."""
    return Stopped("declare", "NoInput", text, "case")


@dataclass(frozen=True)
class Guess:
    """The type of an input, where its values come from, and why."""

    type: str
    high: int | None = None
    """The largest whole number, from 0."""
    why: str = ""
    values: Mapping[str, Any] | None = None
    """Where values come from, as a case says it, in place of ``high``."""
    open: bool = False
    """Whether its whole numbers are a first try, and a wider range is to be found
    (``extras.draft.whole_numbers``)."""

    @property
    def dtype(self) -> str:
        return self.type.partition("[")[0]

    @property
    def said(self) -> Mapping[str, Any] | None:
        """Return where values come from, as a case says it; None where that goes without saying."""
        if self.values is None and self.dtype.startswith(("int", "uint")):
            return {"integers": {"low": 0, "high": 1 if self.high is None else self.high}}
        return self.values

    @property
    def shape(self) -> list[str]:
        inside = self.type.partition("[")[2].rstrip("]")
        return [size.strip() for size in inside.split(",") if size.strip()]


@dataclass(frozen=True)
class Constant:
    """An argument that is no tensor: None, a flag, a number or a text."""

    value: object


Tree: TypeAlias = Guess | Constant | list[Any] | tuple[Any, ...] | dict[str, Any]
"""An argument of forward: a tensor, a constant, or what holds them."""


def guesses_in(tree: object) -> Iterator[Guess]:
    """Return the tensors of an argument, or of several, in order."""
    from torch.utils._pytree import tree_leaves

    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Guess))


@dataclass
class Sizes:
    """Hold what the parts of a module say about its inputs, the first part first."""

    features: list[int] = field(default_factory=list)
    """Sizes of the last axis."""
    channels: list[tuple[int, int]] = field(default_factory=list)
    """Channels, and the number of axes behind them."""
    rows: list[int] = field(default_factory=list)
    """Rows of tables that indices look up."""
    dtype: str = "float32"
    """Of the weights, if a case can say it."""
    in_time: bool = False
    """Whether a part goes along a sequence."""
    sounds: list[str] = field(default_factory=list)
    """Shapes of spectrograms that a configuration of transformers tells."""


def sizes_of(module: nn.Module) -> Sizes:
    """Read the sizes of the layers of PyTorch that a module is made of, or else of its own weights.

    Somebody else's classes may have an attribute of any type under any name, or none: what cannot be read is left
    out.
    """
    sizes = Sizes()
    kinds = or_else([], lambda: [str(weight.dtype) for weight in module.parameters() if weight.is_floating_point()])
    dtypes = (kind.removeprefix("torch.") for kind in kinds)
    sizes.dtype = next((dtype for dtype in dtypes if dtype in DTYPES), sizes.dtype)
    sizes.sounds = or_else([], lambda: [*_spectrograms(module.config)])
    for part in or_else([], lambda: [*module.modules()]):
        own = or_else(None, partial(_sizes_of_layer, part)) or or_else(Sizes(), partial(_sizes_of_weights, part))
        sizes.features += filter(_is_size, own.features)
        sizes.channels += [channels for channels in own.channels if all(map(_is_size, channels))]
        sizes.rows += filter(_is_size, own.rows)
        sizes.in_time |= own.in_time
    return sizes


def _is_size(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _sizes_of_weights(part: nn.Module) -> Sizes:
    import torch

    own = part.parameters(recurse=False)
    return Sizes([tensor.shape[-1] for tensor in own if isinstance(tensor, torch.Tensor) and tensor.ndim])


def _sizes_of_layer(part: nn.Module) -> Sizes | None:
    """Return what a layer of PyTorch says; None for any other. Raises whatever its attributes raise."""
    from torch import nn
    from torch.nn.modules import batchnorm, conv, instancenorm

    sizes = Sizes()
    if isinstance(part, (nn.Embedding, nn.EmbeddingBag)):
        sizes.rows.append(part.num_embeddings)
    elif isinstance(part, conv._ConvNd):
        sizes.channels.append((part.in_channels, len(part.kernel_size)))
    elif isinstance(part, (batchnorm._NormBase, instancenorm._InstanceNorm)):
        axes = re.search(r"(\d)d$", type(part).__name__)
        sizes.channels.append((part.num_features, int(axes[1]) if axes else 2))
    elif isinstance(part, nn.GroupNorm):
        sizes.channels.append((part.num_channels, 2))
    elif isinstance(part, nn.Linear):
        sizes.features.append(part.in_features)
    elif isinstance(part, nn.Bilinear):
        sizes.features += [part.in1_features, part.in2_features]
    elif isinstance(part, (nn.RNNBase, nn.RNNCellBase)):
        sizes.features.append(part.input_size)
        sizes.in_time |= isinstance(part, nn.RNNBase)
    elif isinstance(part, nn.MultiheadAttention):
        sizes.features.append(part.embed_dim)
        sizes.in_time = True
    elif isinstance(part, nn.LayerNorm):
        sizes.features.append(part.normalized_shape[-1])
    else:
        return None
    return sizes


def _spectrograms(config: object) -> Iterator[str]:
    """Yield shapes of a batch of spectrograms, by what configurations of transformers call their sizes; that of an
    encoder may stand inside of another."""
    inner = [one for one in getattr(config, "__dict__", {}).values() if hasattr(one, "num_mel_bins")]
    for one in (config, *inner):
        names = ("num_mel_bins", "max_length", "max_source_positions")
        bins, frames, halves = (getattr(one, name, None) for name in names)
        if isinstance(bins, int):
            if isinstance(halves, int):  # what a first layer with a stride of two makes of the frames
                yield f"batch, {bins}, {2 * halves}"
            if isinstance(frames, int):
                yield f"batch, {frames}, {bins}"
            yield f"batch, seq, {bins}"


def forward_parameters(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of forward; none where it does not say them, as something compiled does not."""
    return or_else({}, lambda: inspect.signature(module.forward).parameters)


def parameters(module: nn.Module) -> Iterator[dict[str, bool]]:
    """Yield names of the parameters of forward that inputs are needed for, and whether they are passed by keyword.

    Where all have a default, those that a main input is known by, and then with one more of ``_USUAL`` each time.
    Raises Stopped where forward names none.
    """
    known = forward_parameters(module).values()
    plain = [one for one in known if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one.name for one in plain if one.default is one.empty]
    if needed:
        yield dict.fromkeys(needed, False)
        return
    names = {one.name for one in known}
    main: object = or_else(None, lambda: module.main_input_name)
    if not isinstance(main, str) or (main not in names and not any(one.kind is one.VAR_KEYWORD for one in known)):
        main = plain[0].name if plain else ""
    if not main:
        raise no_input("the inputs of forward cannot be guessed; give them with --input")
    found = [main, *(["attention_mask"] if main == "input_ids" and "attention_mask" in names else [])]
    yield dict.fromkeys(found, True)
    for name in _USUAL:
        if name in names and name not in found:
            found = [*found, name]
            yield dict.fromkeys(found, True)


_USUAL = ("decoder_input_ids", "pixel_values", "input_features", "input_values", "bbox", "decoder_input_values")
"""The inputs that networks of transformers need besides their main one, though these have defaults."""


def padding_of(name: str, levels: Sequence[float] = (0, 1)) -> dict[str, list[float]]:
    """Return the values of a mask: the lower number hides, but for the masks that PyTorch's own layers call so."""
    hides_first = "key_padding" not in name
    return {"padding": [*levels] if hides_first else [*reversed(levels)]}


def candidates(name: str, layers: Sizes) -> list[Guess]:
    """Types that an input of this name may have, the likeliest first."""
    tables = [
        Guess("int64[batch, seq]", rows - 1, f"indices into a table of {rows:,} rows", open=True)
        for rows in _few(layers.rows, 2)
    ]
    if "mask" in name:
        return [
            Guess("int64[batch, seq]", why=PADDING, values=padding_of(name)),
            Guess("bool[batch, seq]", why=PADDING, values=padding_of(name)),
        ]
    if _IDS.search(name) and tables:
        return tables
    if _EDGES.search(name):
        return [Guess(_usual_type(name), why="pairs of nodes", open=True)]
    if _IMAGE.search(name) and not layers.channels:  # as where patches are cut without a convolution
        layers = dataclasses.replace(layers, channels=[(3, 2), (1, 2)])
    kinds = ((guess, guess.type.replace("float32", layers.dtype, 1)) for guess in _floats(layers))
    floats = (dataclasses.replace(guess, type=kind) for guess, kind in kinds)
    return [*floats, *tables]


def _floats(layers: Sizes) -> Iterator[Guess]:
    yield from (Guess(f"float32[{shape}]", why="a spectrogram, by its configuration") for shape in layers.sounds)
    images = [
        Guess(f"float32[batch, {', '.join([str(count), *_AXES[axes]])}]", why=f"{count} channels of the first layer")
        for count, axes in _few(layers.channels, 2)
        if axes in _AXES
    ]
    rows = [
        Guess(f"float32[{shape}{size}]", why=f"{size} features of the first layer")
        for size in _few(layers.features, 3)
        for shape in (("batch, seq, ", "batch, ") if layers.in_time else ("batch, ", "batch, seq, "))
    ]
    # a patch embedding is a convolution, so that images go before rows
    yield from images
    yield from rows
    for count in _few([*(count for count, _ in layers.channels), *layers.features], 2):
        yield from (Guess(f"float32[batch, {count}, {', '.join(axes)}]") for axes in _AXES.values())
    for shape in ("batch, 4", "batch, 3, h, w", "batch, 3, l", "batch, 3, d, h, w", "batch, 8, h, w"):
        yield Guess(f"float32[{shape}]", why="nothing in the module says its size")


_AXES = {1: ["l"], 2: ["h", "w"], 3: ["d", "h", "w"]}


def _few(values: Sequence[T], count: int) -> list[T]:
    return list(dict.fromkeys(values))[:count]


def made(tree: Any, sizes: Mapping[str, int]) -> object:
    """Return an argument of forward with tensors that are drawn."""
    from torch.utils._pytree import tree_map

    result: object = tree_map(lambda leaf: tensor(leaf, sizes) if isinstance(leaf, Guess) else leaf.value, tree)
    return result


def called(module: nn.Module, inputs: Mapping[str, Tree], keywords: Set[str], sizes: Mapping[str, int]) -> object:
    """Return what the module returns for inputs that are drawn at these sizes."""
    positional, named = arguments_of(inputs, keywords, sizes)
    return module(*positional, **named)


def arguments_of(
    inputs: Mapping[str, Tree], keywords: Set[str], sizes: Mapping[str, int]
) -> tuple[list[object], dict[str, object]]:
    """Return arguments of forward that are drawn at these sizes: by position, and by name."""
    arguments = {name: made(tree, sizes) for name, tree in inputs.items()}
    positional = [arguments[name] for name in arguments if name not in keywords]
    return positional, {name: arguments[name] for name in arguments if name in keywords}


def tensor(guess: Guess, sizes: Mapping[str, int]) -> Tensor:
    """Return a tensor of a guessed type, drawn as a case draws it."""
    import torch

    if guess.dtype not in DTYPES:
        shape = [int(size) if size.isdigit() else sizes[size] for size in guess.shape]
        return torch.randn(shape, dtype=getattr(torch, guess.dtype))
    said = guess.said
    declared = Input.model_validate({"type": guess.type} | ({} if said is None else {"values": said}))
    hook = declared.values.python if declared.values is not None else None
    rng = np.random.default_rng(int(torch.randint(2**31, ())))
    return torch.from_numpy(make(declared, sizes, "plain", rng, None if hook is None else resolve_name(hook)))


def replaced(tree: object, old: Guess, new: Guess) -> Any:
    """Return an argument, or several, with ``new`` in place of the guess ``old`` itself."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: new if leaf is old else leaf, tree)


Call = Callable[[Mapping[str, Guess], Mapping[str, int]], object]
"""Calls the module with inputs of guessed types at these sizes; raises what it raises."""


def fitting(
    names: Sequence[str],
    layers: Sizes,
    given: Mapping[str, Guess],
    call: Call,
    known: Mapping[str, int],
    deadline: float,
) -> tuple[dict[str, Guess], dict[str, int]]:
    """Types for all inputs with which the module runs, and the sizes at which it does. ``given`` are types that are
    known, and so are sizes. Raises Stopped where none is found by ``deadline`` (``time.monotonic``)."""
    said, place, deepest = "", "", 0
    options = {name: _first_tries(given[name]) if name in given else candidates(name, layers) for name in names}
    alike = zip(*(options[name] for name in names if name not in given), strict=False)
    free = [name for name in names if name not in given]
    together = ({**given, **dict(zip(free, one, strict=True))} for one in alike) if free else iter([dict(given)])
    each = (dict(zip(names, one, strict=True)) for one in itertools.product(*options.values()))
    for guesses in itertools.chain(together, each):
        used = {size for guess in guesses.values() for size in guess.shape if not size.isdigit()}
        sides = IMAGES if used & {"h", "w"} else IMAGES[:1]
        for side in sides:
            sizes = {name: side if name in ("h", "w") else BASE.get(name, 3) for name in sorted(used)}
            sizes |= {name: size for name, size in known.items() if name in sizes}
            if any(_count(guess, sizes) > MOST for guess in guesses.values()):
                continue
            refused = attempt(partial(call, guesses, sizes))
            if not isinstance(refused, Exception):
                return guesses, sizes
            depth = sum(1 for _ in traceback.walk_tb(refused.__traceback__))
            if depth > deepest:  # what came furthest says most
                deepest, said, place = depth, summarize(refused)[:200], place_of(refused)
        if time.monotonic() > deadline:
            break
    how = " ".join(f"--input {name}='{_usual_type(name)}'" for name in free or names)
    text = f"the module runs with no inputs that were tried ({said}); say them, as in {how}"
    raise no_input(f"{text}; {place} raised it" if place else text)


def _usual_type(name: str) -> str:
    """Return a type that an input of this name often has, as an example."""
    usual = {_EDGES: "int64[2, e]", _IDS: "int64[batch, seq]", _IMAGE: "float32[batch, 3, 64, 64]"}
    return next((kind for pattern, kind in usual.items() if pattern.search(name)), "float32[batch, 8]")


def _count(guess: Guess, sizes: Mapping[str, int]) -> int:
    """Return how many numbers an input has."""
    return math.prod(int(size) if size.isdigit() else sizes[size] for size in guess.shape)


def _first_tries(guess: Guess) -> list[Guess]:
    """A type that is known, where its numbers are not: not all modules take 0, and not all take 1."""
    if not guess.open:
        return [guess]
    ends = ((0, 1), (1, 1), (0, 0))
    return [dataclasses.replace(guess, values={"integers": {"low": low, "high": high}}) for low, high in ends]


def names_of(arguments: Mapping[str, Tree]) -> list[str]:
    """Return the dims of the types, in order."""
    sizes = (size for guess in guesses_in(arguments) for size in guess.shape)
    return list(dict.fromkeys(size for size in sizes if not size.isdigit()))
