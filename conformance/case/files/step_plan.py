"""Find how a case with ``steps`` goes on from step to step, and what is wrong with what it says of that.

What a case leaves out is found by the names that exporters of language models give: ``past_key_values.0.key`` of
optimum and onnxruntime-genai takes ``present.0.key``, ``input_ids`` the token that ``logits`` say. Nothing is found
by the order of inputs, which may be another than that of outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, get_args

from conformance.case.files.stepwise import Going
from conformance.process.errors import did_you_mean, shown

if TYPE_CHECKING:
    from conformance.case.files.declaration import Declaration

Mistakes: TypeAlias = list[tuple[tuple[str | int, ...], str]]

_PAST = re.compile(r"(past|present)(_key_values?|_kv)?(?![a-z])")
_KINDS = {"key": "0", "keys": "0", "k": "0", "value": "1", "values": "1", "v": "1"}
_HOLDERS = {"layers", "ddp", "cache", "data"}
"""Words of objects that hold a cache, as transformers calls them."""
_TOKENS = re.compile(r"(^|[._])(input_ids|tokens?)$|^ids$")


@dataclass(frozen=True)
class StepPlan:
    """The ``steps`` of a case with all that need no saying."""

    count: int
    feed: Mapping[str, str]
    token: tuple[str, str] | None
    """The input and the output of tokens."""
    next: Mapping[str, Going]
    """The way on, from step to step, of each input that is neither fed nor the token."""
    along: str | None
    """The dim that is 1 in a step; None where it always is."""
    written: str | None = None
    """The input that says where a step writes in a cache of a fixed size; what is ``filled`` ends behind that."""


def step_plan(says: Declaration) -> tuple[StepPlan, Mistakes]:
    """Return how a case with ``steps`` goes on from step to step, and what is wrong with it, each with its place."""
    assert says.steps is not None
    steps, wrong = says.steps, Mistakes()
    outputs = [output.name for output in says.outputs]
    if not outputs:
        wrong.append((("steps",), "steps needs the names of what forward returns: say outputs, or returns"))
        return StepPlan(steps.count, {}, None, {}, None), wrong

    for key, pairs in (("feed", steps.feed), ("token", steps.token or {}), ("next", dict.fromkeys(steps.next))):
        for name, output in pairs.items():
            for what, word, known in (("input", name, [*says.inputs]), ("output", output, outputs)):
                if word is not None and word not in known:
                    text = f"there is no {what} {shown(word)}{did_you_mean(word, known)}"
                    wrong.append((("steps", key, name), text))
    feed = {**_fed_by_name(says.inputs, outputs), **steps.feed}
    feed = {name: output for name, output in feed.items() if name not in steps.next}
    for name in says.inputs:
        if name.startswith("past") and says.inputs[name].type.is_float and name not in {**feed, **steps.next}:
            text = f"nothing feeds {name}: say which output it takes, as in feed: {{{name}: {outputs[-1]}}}"
            wrong.append((("steps",), text))
    if len({*feed.values()}) < len(feed):
        twice = next(name for name in feed.values() if list(feed.values()).count(name) > 1)
        wrong.append((("steps",), f"{twice} feeds two inputs, of which one needs another output: say feed"))
    if not feed:
        wrong.append((("steps",), "no input takes an output again: say which, as in feed: {past_key: present_key}"))
    token = next(iter(steps.token.items()), None) if steps.token is not None else _token(says, feed, outputs, wrong)
    if token is not None and token[0] in says.inputs and says.inputs[token[0]].type.dtype not in ("int64", "int32"):
        wrong.append((("steps", "token"), f"{token[0]} takes a token, and is no int64 or int32"))
        token = None
    if wrong:
        return StepPlan(steps.count, feed, None, {}, None), wrong
    along = _along(says, feed, token, wrong)
    after = _ways_on(says, feed, token, along, wrong)
    rows = {says.inputs[name].type.shape for name, way in after.items() if way == "filled"}
    counted = [name for name, way in after.items() if way == "count" and says.inputs[name].type.shape in rows]
    return StepPlan(steps.count, feed, token, after, along, next(iter(counted), None)), wrong


def _fed_by_name(inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """Return the inputs of a past with the one output that is called as they are."""
    places: dict[tuple[str, ...], list[str]] = {}
    for output in outputs:
        if (place := _place(output)) is not None:
            places.setdefault(place, []).append(output)
    found = {name: places.get(_place(name) or ("",), []) for name in inputs if name.startswith("past")}
    return {name: among[0] for name, among in found.items() if len(among) == 1}


def _place(name: str) -> tuple[str, ...] | None:
    """Return ``("0", "1")`` of ``past_key_values.0.value``; None of what is called neither past nor present."""
    match = _PAST.match(name)
    if match is None:
        return None
    words = re.findall(r"[a-z]+|\d+", name[match.end() :])
    return tuple(_KINDS.get(word, word) for word in words if word not in _HOLDERS)


def _token(
    says: Declaration, feed: Mapping[str, str], outputs: Iterable[str], wrong: Mistakes
) -> tuple[str, str] | None:
    if "logits" not in outputs:
        return None
    named = [name for name in says.inputs if _TOKENS.search(name) and name not in feed]
    named = [name for name in named if "decoder" in name] or named
    if len(named) != 1:
        wrong.append((("steps",), "which input takes the next token? Say it, as in token: {tokens: logits}"))
        return None
    return named[0], "logits"


def _along(says: Declaration, feed: Mapping[str, str], token: tuple[str, str] | None, wrong: Mistakes) -> str | None:
    """Return the dim that is 1 in a step."""
    if token is not None:
        last = says.inputs[token[0]].type.shape[-1:]
        if last and last[0].constant == 1:
            return None
        found = frozenset(map(str, last)) & says.dims.keys()
    else:
        fed = frozenset[str]().union(*(says.inputs[name].type.names for name in feed))
        found = frozenset[str]().union(*(one.type.names for name, one in says.inputs.items() if name not in feed))
        found = (found - fed) & says.dims.keys()
        if not found:
            return None
    if len(found) != 1:
        dims = " or ".join(sorted(found)) or "a fixed size"
        wrong.append((("steps",), f"a step has one token: let the tokens vary along a dim of their own, not {dims}"))
        return None
    (dim,) = found
    low = says.dims[dim].low.constant
    if low is not None and low > 1:
        wrong.append((("dims", dim), f"a step has one token, and {dim} begins at {low}: let it begin at 1"))
    return dim


def _ways_on(
    says: Declaration, feed: Mapping[str, str], token: tuple[str, str] | None, along: str | None, wrong: Mistakes
) -> dict[str, Going]:
    """Return how each input goes on that is neither fed nor the token."""
    assert says.steps is not None
    others = [name for name in says.inputs if name not in feed and (token is None or name != token[0])]
    fed = frozenset[str]().union(*(says.inputs[name].type.names for name in feed))
    first = says.inputs[token[0]].type.names if token else frozenset(says.dims) - {along or ""}
    changing = (fed - first) | {along or ""}
    found: dict[str, Going] = {}
    for name in others:
        kind, given = says.inputs[name].type, says.steps.next.get(name)
        if given is not None:
            found[name] = given
        elif re.search("pos|^write_ind", name) and not kind.is_float:
            found[name] = "count"
        elif "nonpad" in name and not kind.is_float:
            found[name] = "filled"
        elif not kind.names & changing:
            found[name] = "same"
        elif "mask" in name:
            found[name] = "repeat" if kind.is_float else "ones"
        elif token is None:
            found[name] = "drawn"
        else:
            ways = ", ".join(get_args(Going))
            text = f"how does {name} go on? Say it, as in next: {{{name}: count}}: {ways}"
            wrong.append((("steps",), text))
    return found
