"""Find the pass of ONNX Runtime's optimizer that breaks a model, where the model is right without the optimizer.

The lowest level of optimization that fails, then the smallest set of passes without which the outputs are right. One
pass alone may still be no more than a helper, as one that removes the node which kept another from fusing. So it is
held to the reverse too: on the model as all others leave it, that pass alone has to break it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from conformance.diagnose.nodes.other_runtime import Asked, answer, answered
from conformance.diagnose.search import Asking, OutOfTime, Shrinker, part, require_time, search_aside
from conformance.process.arrays import Array
from conformance.process.errors import attempt
from conformance.process.worker import aside
from conformance.runtimes.onnxgraph.reads import copy_of, operator_of, refill
from conformance.runtimes.onnxruntime import Optimizing
from conformance.runtimes.optimizer_passes import LEVELS, Passes, only, open_at, passes_of

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto

SECONDS = 30.0
"""How long passes are switched off; then what is known so far is told."""
SHOWN = 12
"""How many nodes are told that a pass took away, and how many that it made."""


_T = TypeVar("_T")


@dataclass(frozen=True)
class Broken:
    """A model that fails in ONNX Runtime with its optimizer on, and not with it off."""

    model: Path
    libraries: Sequence[str]
    inputs: Mapping[str, Array]
    config: Mapping[str, str]
    outcome: Callable[[Asked], str]
    """``right``; ``alike`` where it fails as it did; ``other`` where nothing follows from the answer."""

    def answer(self, model: Path, optimizing: Optimizing) -> Asked:
        """Return what ONNX Runtime computes of a model that it optimizes so."""
        return answer(partial(open_at, model, self.libraries, self.config, optimizing), self.inputs)


def guilty(broken: Broken, seconds: float = SECONDS) -> dict[str, Any] | None:
    """Return what is known of the passes that break a model, for the record; None where it fails at no level, or
    nothing could be asked.

    ``of`` is ``onnxruntime``, ``level`` the lowest level that fails, ``changed`` the number of names that were
    suspected. ``passes`` are without which the outputs are right: one, or the smallest set; empty where none could
    be named. ``alone`` is whether that one breaks what all others leave right; ``helpers`` are others without which
    the outputs are right too, but which break nothing by themselves. Where none does, and several break the model
    ``together``, without the rest, ``passes`` are all of these. ``removed`` and ``added`` are nodes, as ``Add name``,
    ``more`` how many of them are not told; ``unfinished`` is true where time ran out.
    """
    return search_aside(lambda ask, deadline: _guilty(_Sessions(broken, ask, deadline)), seconds)


def _guilty(sessions: _Sessions) -> dict[str, object] | None:
    broken = sessions.broken
    with tempfile.TemporaryDirectory() as folder:
        try:
            level = next((level for level in LEVELS if sessions.outcome(level) == "alike"), None)
            if level is None:
                return None
            passes = sessions.asked(lambda: passes_of(broken.model, broken.libraries, broken.config, level))
        except (OutOfTime, aside.Lost, RuntimeError, OSError):
            return None
        fields: dict[str, object] = {
            "of": "onnxruntime", "level": level.lower(), "changed": len(passes.changed), "passes": [],
            "alone": False, "helpers": [],
        }  # fmt: skip
        try:
            _name(sessions, level, passes, fields, Path(folder))
        except (OutOfTime, aside.Lost):
            fields["unfinished"] = True
    return fields


def _name(sessions: _Sessions, level: str, passes: Passes, fields: dict[str, Any], folder: Path) -> None:
    helpers: list[str] = []
    heals = Shrinker[Sequence[str]](lambda names: sessions.outcome(level, names) == "right", key=tuple).fails
    while True:
        left = [name for name in passes.changed if name not in helpers]
        healing = part(left, heals) if left else None
        if healing and len(healing) > 1:  # halves may hide one that is enough by itself
            healing = next(([name] for name in left if heals([name])), healing)
        if healing is None or (len(healing) > 1 and helpers):
            break
        if not fields["passes"]:
            fields["passes"] = list(healing)
        before, after = folder / "before.onnx", folder / "after.onnx"
        if len(healing) > 1:
            sessions.saved(level, healing, sessions.broken.model, before)
            sessions.saved(level, (), sessions.broken.model, after)
            fields |= _difference(before, after)
            return
        (name,) = healing
        others = only([name], passes.all)
        sessions.saved(level, healing, sessions.broken.model, before)
        if before.is_file() and sessions.outcome(level, others, before) == "alike":
            sessions.saved(level, others, before, after)
            fields |= {"passes": [name], "alone": True, "helpers": helpers, **_difference(before, after)}
            return
        if not helpers:
            sessions.saved(level, (), sessions.broken.model, after)
            fields |= _difference(before, after)
        helpers.append(name)
    if helpers:
        needed = part(passes.changed, lambda names: sessions.outcome(level, only(names, passes.all)) == "alike")
        fields |= {} if needed is None else {"passes": needed, "alone": len(needed) == 1, "together": len(needed) > 1}
    fields["helpers"] = [name for name in helpers if name not in fields["passes"]]


def right_without_reuse(broken: Broken) -> bool:
    """Return whether the model, with all passes on, fails as long as a tensor may take the memory of one that nobody
    needs any more, and is right otherwise."""

    def outcome(*, reuse: bool) -> str:
        return broken.outcome(answered(lambda: broken.answer(broken.model, Optimizing(reuse=reuse))))

    return outcome(reuse=False) == "right" and outcome(reuse=True) == "alike"


@dataclass(frozen=True)
class _Sessions:
    """Sessions with passes switched off, each opened where ``ask`` asks."""

    broken: Broken
    ask: Asking
    deadline: float

    def asked(self, question: Callable[[], _T]) -> _T:
        """The answer; raises what the question raises, ``aside.Lost`` where its process ends, and OutOfTime."""
        return self.ask(question, require_time(self.deadline))

    def outcome(self, level: str, off: Sequence[str] = (), model: Path | None = None) -> str:
        """The outcome of the model, or of one that ``saved`` wrote, at a level without some passes."""
        require_time(self.deadline)
        question = partial(self.broken.answer, model or self.broken.model, Optimizing(level, tuple(off)))
        return self.broken.outcome(answered(question, self.ask))

    def saved(self, level: str, off: Sequence[str], model: Path, file: Path) -> None:
        """Write the model as it is after optimization; nothing where it cannot be."""
        broken = self.broken
        file.unlink(missing_ok=True)

        def question() -> None:
            with open_at(model, broken.libraries, broken.config, Optimizing(level, tuple(off), file)):
                pass

        failed = attempt(lambda: self.asked(question))
        if isinstance(failed, aside.Lost | OutOfTime):
            raise failed


def _difference(before: Path, after: Path) -> dict[str, object]:
    """The nodes of one file that the other has not, both ways; empty where either is missing."""
    import onnx

    if not before.is_file() or not after.is_file():
        return {}
    graphs = [onnx.load(file, load_external_data=False).graph for file in (before, after)]
    counts = [Counter(map(_content, graph.node)) for graph in graphs]

    def gone(here: int) -> list[str]:
        extra = counts[here] - counts[1 - here]
        return [_named(node) for node in graphs[here].node if _content(node) in extra]

    removed, added = gone(0), gone(1)
    more = max(len(removed) - SHOWN, 0) + max(len(added) - SHOWN, 0)
    return {"removed": removed[:SHOWN], "added": added[:SHOWN], "more": more}


def _content(node: NodeProto) -> bytes:
    plain = copy_of(node)
    for field in ("name", "doc_string", "metadata_props"):
        plain.ClearField(field)
    kept = [attribute for attribute in node.attribute if not _is_default(node, attribute)]
    refill(plain.attribute, sorted(kept, key=lambda attribute: str(attribute.name)))
    return bytes(plain.SerializeToString(deterministic=True))


def _is_default(node: NodeProto, attribute: AttributeProto) -> bool:
    """Return whether an attribute says what goes without saying, which ONNX Runtime writes out in some of its
    files."""
    from onnx import defs

    try:
        default = defs.get_schema(node.op_type, node.domain).attributes.get(attribute.name)
    except defs.SchemaError:
        return False
    return default is not None and default.default_value == attribute


def _named(node: NodeProto) -> str:
    return f"{operator_of(node)} {node.name or next(iter(node.output), '')}".rstrip()
