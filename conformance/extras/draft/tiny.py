"""Make a network small: fewer layers, narrower, with a small vocabulary, as far as its class allows.

A class of transformers is made of its configuration, and all else of its arguments. Their names say what each number
is; which of them may be small is found by making the network and running it.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, islice
from types import FrameType
from typing import Any

from conformance.case.files.made import value_of
from conformance.case.files.python import Folder
from conformance.extras.draft.drafting import (
    Draft,
    Request,
    building,
    class_of_configuration,
    draft_module,
    refuse_to_build,
)
from conformance.extras.draft.guessed_inputs import no_input
from conformance.process.errors import Stopped, attempt, summarize

LAYERS, HEADS, WIDTH, WORDS, EXPERTS, SIDE = 2, 4, 32, 99, 4, 64
"""The numbers that are aimed at."""
MOST, SECONDS, SECONDS_EACH = 8, 60.0, 20.0
"""The most choices of kinds that are tried, and the seconds for all of them and for the inputs of each."""
MOST_WEIGHTS = 200_000_000
"""Of a network that is tried."""
_ROLES = {
    "words": re.compile(r"(^|_)(vocab_size|vocabulary_size|vocab|num_embeddings)$"),
    "layers": re.compile(r"(^|_)(n_|num_)?(layers?|blocks|depths?)$"),
    "heads": re.compile(r"(^|_)(n_heads?|num_heads|nhead|(num_|encoder_|decoder_)\w*heads|heads)$"),
    "experts": re.compile(r"(^|_)(num|n)_(\w+_)?experts$"),
    "width": re.compile(
        r"(^|_)(d_model|d_ff|d_kv|d_inner|n_embd|n_inner|dim|dims|width|channels|num_features|hidden_sizes?|"
        r"(\w+_)?(hidden|intermediate|embedding|embed|ffn|feedforward|head|inner|projection|lora|output)_(size|dim|rank|"
        r"channels)s?|dim_feedforward|conv_dim|encoder_in_channels)$"
    ),
    "side": re.compile(r"(^|_)(image|img|input)_size$"),
}
"""The names by which a number is known to be of a kind."""
_FIXED = re.compile(r"(^|_)(num_channels|in_channels|in_chans|patch_size|kernel_size|window_size)$")
_TOKEN = re.compile(r"_(token_)?ids?$|_(token|index)$")
_PER_TOKEN = re.compile(r"(^|_)(experts_per_tok(en)?|top_k|topk|n_group|topk_group)$")

Numbers = Mapping[str, Any]
"""Arguments or a configuration: numbers, lists of them, and mappings of the like, by name."""
Changed = dict[str, object]
"""Numbers that are others, by name."""


def draft_tiny(request: Request) -> tuple[Request, Draft]:
    """Return what makes the module small, and its draft.

    Of the kinds of numbers as many are reduced as the module runs with, all of them first, and none where it has none
    that are known by name. Raises Stopped as ``draft_module`` does, where it runs with none.
    """
    wrap, numbers = numbers_of(request)
    kinds = [kind for kind in _SMALLER if reduced(numbers, {kind})]
    choices = list(islice(_choices(numbers, kinds), MOST))
    tried: list[Numbers] = []
    refused: list[Exception] = []
    deadline = time.monotonic() + SECONDS
    for smaller in (*choices, {}):
        given = wrap(smaller)
        if given in tried or (tried and smaller and time.monotonic() > deadline):
            continue
        tried.append(given)
        small = dataclasses.replace(request, given=given)
        draft = attempt(partial(_draft_if_small, small))
        if not isinstance(draft, Exception):
            return small, draft
        refused.append(draft)
    raise refused[0]


def _choices(numbers: Numbers, kinds: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield what changes, with all kinds reduced first, next without a cache of what a decoder has seen, whose layers
    may be gone, and then with fewer and fewer kinds."""
    every = reduced(numbers, set(kinds))
    if every:
        yield every
        if numbers.get("use_cache"):
            yield every | {"use_cache": False}
    for count in range(len(kinds) - 1, 0, -1):
        for chosen in combinations(kinds, count):
            yield reduced(numbers, set(chosen))


def _draft_if_small(request: Request) -> Draft:
    """Return the draft of a module. Raises Stopped for one whose weights would fill the memory."""
    count = attempt(partial(weights, request))
    if not isinstance(count, Exception) and count > MOST_WEIGHTS:
        raise no_input(f"{request.module} has {count:,} weights as small as it could be made; give sizes by --with")
    return draft_module(request, SECONDS_EACH)


def weights(request: Request) -> int:
    """Return how many numbers the weights of a module are, without making them."""
    import torch

    with torch.device("meta"), building(request) as module:
        return sum(parameter.numel() for parameter in module.parameters())


def numbers_of(request: Request) -> tuple[Callable[[Numbers], Numbers], Numbers]:
    """Return how the arguments of the module are made of changed numbers, and the numbers as they are."""
    with Folder.of(request.folder).active() as folder:
        kind = folder.resolve(request.module)
        of = class_of_configuration(kind)
        if of is not None and hasattr(of, "to_dict") and "config" not in request.given:
            usual = attempt(lambda: dict(of().to_dict()))
            if isinstance(usual, Exception):
                text = f"{of.__name__} cannot be made without arguments: {summarize(usual)}"
                raise Stopped("declare", type(usual).__name__, text, "case") from usual
            name = _public_name(of)
            return lambda numbers: {**request.given, "config": {"new": name, "with": dict(numbers)}}, usual
        given = {name: value_of(value, folder) for name, value in request.given.items()}
        return lambda numbers: {**numbers, **request.given}, _arguments(request, kind, given)


def _public_name(kind: type) -> str:
    """Return the shortest name by which a class can be imported."""
    root = kind.__module__.partition(".")[0]
    return f"{root}.{kind.__name__}" if getattr(sys.modules[root], kind.__name__, None) is kind else (
        f"{kind.__module__}.{kind.__qualname__}"
    )  # fmt: skip


def _arguments(request: Request, make: Callable[..., object], given: Numbers) -> Changed:
    """Return the arguments with which the class of a module is made where ``make`` is called, without its weights."""
    import torch

    seen: list[tuple[torch.nn.Module, Changed]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            names, _, more, values = inspect.getargvalues(frame)
            own = values.get(names[0]) if names else None
            if isinstance(own, torch.nn.Module) and all(own is not one for one, _ in seen):
                said = {name: values[name] for name in names[1:] if name in values}
                seen.append((own, said | (values.get(more, {}) if more else {})))

    def build(device: str) -> object:
        with torch.device(device):
            return make(**given)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        module = attempt(partial(build, "meta"))
        if isinstance(module, Exception):  # made of numbers that tensors gave
            seen.clear()
            module = attempt(partial(build, "cpu"))
    finally:
        sys.setprofile(before)
    if isinstance(module, Exception):
        refuse_to_build(request, make, module)
    return next((dict(arguments) for own, arguments in seen if own is module), {})


# ---- which numbers become which ------------------------------------------------------------------------------


def reduced(numbers: Numbers, kinds: set[str]) -> Changed:
    """Return the numbers that change where these kinds are reduced, by name."""
    own = {name: value for name, value in numbers.items() if _is_number(value) and not _FIXED.search(name)}
    changed: Changed = {}
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            changed[name] = reduced(value, kinds) or value
    for kind in kinds:
        changed |= _SMALLER[kind](own, {name: value for name, value in own.items() if _kind(name) == kind})
    return {name: value for name, value in changed.items() if value != numbers[name]}


def _fewer_words(numbers: Numbers, known: Numbers) -> Changed:
    """Return a small vocabulary, and other numbers for the tokens that it lacks: its last ones, one for each."""
    words = min((min(_flat(value)) for value in known.values()), default=0)
    left = iter(range(min(words, WORDS) - 1, 0, -1))
    beyond = {name: value for name, value in numbers.items() if _TOKEN.search(name) and max(_flat(value)) >= WORDS}
    tokens = {name: _each(value, lambda _: next(left, 0)) for name, value in beyond.items()} if known else {}
    return {**_at_most(WORDS, known), **tokens}


def _fewer_layers(numbers: Numbers, known: Numbers) -> Changed:
    """Return few layers, and one in each of several stages. A number that counts the entries of a list stays."""
    described = {len(value) for value in numbers.values() if isinstance(value, (list, tuple)) and len(value) > 1}
    return {
        name: _each(value, lambda one: min(one, 1)) if isinstance(value, (list, tuple)) else min(value, LAYERS)
        for name, value in known.items()
        if isinstance(value, (list, tuple)) or value not in described
    }


def _fewer_experts(numbers: Numbers, known: Numbers) -> Changed:
    at_once = {name: value for name, value in numbers.items() if known and _PER_TOKEN.search(name)}
    return {**_at_most(EXPERTS, known), **_at_most(2, at_once)}


def _shorter_sides(_: Numbers, known: Numbers) -> Changed:
    return _at_most(SIDE, known)


def _narrow(numbers: Numbers, known: Numbers) -> Changed:
    """Return smaller widths in the proportions that they have, and numbers of heads that divide them."""
    heads = {name: value for name, value in numbers.items() if _kind(name) == "heads"}
    of_heads = {name: value for name, value in known.items() if "head" in name}
    wide = {name: value for name, value in known.items() if name not in of_heads and min(_flat(value)) >= WIDTH}
    sizes = [size for value in wide.values() for size in _flat(value)]
    by = max((part for part in _divisors(math.gcd(*sizes)) if min(sizes) // part >= WIDTH), default=1) if sizes else 1
    most = max((value for value in heads.values() if isinstance(value, int)), default=1)
    return {
        **{name: _each(value, lambda size: size // by) for name, value in wide.items()},
        **_at_most(WIDTH // HEADS, of_heads),
        **{name: _fewer_heads(value, most) for name, value in heads.items()},
    }


def _fewer_heads(value: int | Sequence[int], most: int) -> int | list[int]:
    """Return a number of heads as a share of ``HEADS``, as it was one of ``most``; several in their proportions."""
    if isinstance(value, int):
        return max(1, HEADS * value // most)
    return [number // math.gcd(*value) for number in value]


_SMALLER: Mapping[str, Callable[[Numbers, Numbers], Changed]] = {
    "words": _fewer_words,
    "layers": _fewer_layers,
    "experts": _fewer_experts,
    "width": _narrow,
    "side": _shorter_sides,
}
"""The functions that reduce the numbers of a kind, given all of them; heads go with the width that they divide."""


def _kind(name: str) -> str | None:
    return next((kind for kind, pattern in _ROLES.items() if pattern.search(name)), None)


def _is_number(value: object) -> bool:
    several = value if isinstance(value, (list, tuple)) else [value]
    return bool(several) and all(isinstance(number, int) and not isinstance(number, bool) for number in several)


def _at_most(most: int, numbers: Numbers) -> Changed:
    return {name: _each(value, lambda one: min(one, most)) for name, value in numbers.items()}


def _each(value: int | Sequence[int], change: Callable[[int], int]) -> int | list[int]:
    return change(value) if isinstance(value, int) else [change(number) for number in value]


def _flat(value: int | Sequence[int]) -> Sequence[int]:
    return [value] if isinstance(value, int) else value


def _divisors(number: int) -> Iterator[int]:
    return (part for part in range(1, number + 1) if number % part == 0)
