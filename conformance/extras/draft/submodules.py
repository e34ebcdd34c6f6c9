"""The parts of a network, each drafted from the calls that it gets while the whole runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.extras.draft.drafting import Draft, Request, building, draft_of, other_size, tried
from conformance.extras.draft.guessed_inputs import called, sizes_of
from conformance.extras.draft.recorded_inputs import AXES, RecordedCall, call_of, types_of
from conformance.process.errors import Stopped, attempt

if TYPE_CHECKING:
    from torch.nn import Module


@dataclass(frozen=True)
class Part:
    """A submodule, which stands for all of its class."""

    path: str
    kind: str
    """Its class."""
    count: int
    """How many there are of this class, as deep as was looked."""
    draft: Draft | str
    """Or why there is none."""

    def name(self, whole: str, taken: set[str]) -> str:
        """A name for its case, that is not taken."""
        word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", self.kind).lower().strip("_")
        name = re.sub(r"\W+", "_", f"{whole}_{word}")
        return next(one for one in (name, *(f"{name}_{n}" for n in range(2, 10_000))) if one not in taken)


def parts(request: Request, levels: int) -> list[Part]:
    """A draft of one submodule of each class down to so many levels. The whole runs at several sizes of each of its
    dims, and a submodule's dims are the sizes that differ. Raises Stopped where the whole does not run."""
    with building(request) as module:
        whole, sizes = draft_of(module, request.inputs, request.dims)
        runs = [dict(sizes), *(sizes | {name: other_size(said, sizes[name])} for name, said in whole.dims.items())]
        first: dict[type, tuple[str, Module]] = {}
        counts: dict[type, int] = {}
        for path, part, level in _levels_of(module):
            if level <= levels:
                first.setdefault(type(part), (path, part))
                counts[type(part)] = counts.get(type(part), 0) + 1
        calls = {path: _calls(module, part, whole, runs) for path, part in first.values()}
        given = {name: tuple(run[name] for run in runs) for name in whole.dims if len(runs) > 1}
        drafts = (
            (path, part, from_calls(part, own, given) if isinstance(own := calls[path], list) else own)
            for path, part in first.values()
        )
        return [Part(path, type(part).__name__, counts[type(part)], draft) for path, part, draft in drafts if draft]


def _levels_of(module: Module, path: str = "", level: int = 0) -> Iterator[tuple[str, Module, int]]:
    """The submodules with their paths and how deep they lie. Lists and mappings of modules, which are never called,
    are no level."""
    import torch

    for name, part in module.named_children():
        inner = f"{path}.{name}" if path else name
        depth = level + (not isinstance(part, (torch.nn.ModuleList, torch.nn.ModuleDict)))
        if depth > level:
            yield inner, part, depth
        yield from _levels_of(part, inner, depth)


def _calls(module: Module, part: Module, whole: Draft, runs: list[dict[str, int]]) -> list[RecordedCall] | str | None:
    """The first call of a part in each run; why a case cannot say it, or None where it is not called in each."""
    calls: list[RecordedCall | str] = []

    def note(_: Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if len(calls) < number:
            try:
                calls.append(call_of(part, args, kwargs))
            except Stopped as stop:
                calls.append(stop.reason)

    hook = part.register_forward_pre_hook(note, with_kwargs=True)
    try:
        for number, sizes in enumerate(runs, 1):
            called(module, whole.inputs, whole.keywords, sizes)
            if len(calls) < number:
                return None
    finally:
        hook.remove()
    known = [one for one in calls if isinstance(one, RecordedCall)]
    return known if len(known) == len(calls) else next(one for one in calls if isinstance(one, str))


def from_calls(
    module: Module, calls: list[RecordedCall], given: Mapping[str, tuple[int, ...]] | None = None, axes: int = AXES
) -> Draft | str:
    """A draft of a module that got these calls; or why there is none. ``given`` and ``axes`` as ``types_of`` has
    them."""
    inputs, sizes = types_of(calls, sizes_of(module).rows, given, axes)
    if not inputs:
        return "it is called without an argument"
    draft = attempt(lambda: tried(module, inputs, calls[0].keywords, sizes))
    if isinstance(draft, Stopped):
        return draft.reason
    if isinstance(draft, Exception):
        lines = str(draft).splitlines() or [""]
        return f"with inputs that are drawn it raises {type(draft).__name__}: {lines[0][:200]}"
    return draft
