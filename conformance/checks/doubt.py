"""A model that nothing but ONNX's shape inference refuses: runtimes say whether it is right.

Shape inference has rules of its own for the sizes of some outputs, such as those of pooling with ``ceil_mode``, which
PyTorch and the runtimes compute otherwise. A wrong model is refused for the same reason, so that somebody has to run
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conformance.arrays import Array
from conformance.checks.models import CellRun
from conformance.checks.refused import note_refused_model
from conformance.checks.verify import Verifier
from conformance.draw.draw import Draw
from conformance.errors import Stopped, or_else
from conformance.export.graph import Facts
from conformance.export.model_store import Stored
from conformance.runtimes import opener, registry
from conformance.verdict.example import Example

ASKED = tuple(runtime.name for runtime in registry.RUNTIMES if runtime.in_cases and not runtime.absent)
"""The runtimes that are asked, each with kernels of its own."""


def check_doubted(run: CellRun, stored: Stored) -> None:
    """Stopped where shape inference refuses the model and nobody shows that it is wrong to: no runtime runs it,
    or one that does gives other shapes or values than PyTorch. The record's warning says who gives the same."""
    if not stored.facts.doubted:
        return
    error, text = stored.facts.doubted
    verify = Verifier(run.of_cell(stored))
    agree = set(ASKED)
    for example in _examples(run, verify):
        answers = {name: _answer(run, verify, stored, name, example) for name in ASKED}
        wrong = [f"{name}: {told}" for name, told in answers.items() if told]
        declared = _declared_otherwise(stored.facts, example.wanted)
        ran = {name for name, told in answers.items() if told is not None}
        if declared or wrong or not ran:
            why = declared or "; ".join(wrong) or f"neither {' nor '.join(ASKED)} can run it"
            stop = Stopped("check", error, f"onnx.checker refuses the model: {text} ({why})", "exporter")
            note_refused_model(run, stop)
            raise stop
        agree &= ran
    run.record.warnings = [
        {**warning, "agree": sorted(agree)} if warning["name"] == "shape inference" else warning
        for warning in run.record.warnings
    ]


def _examples(run: CellRun, verify: Verifier) -> Iterator[Example]:
    """The inputs that the model was traced with, and others of odd sizes where the model takes them."""
    traced = run.prepared.trace()
    for odd in (False, True):
        sizes = run.prepared.trace(odd=odd)
        if all(sizes[name] == traced[name] for name in run.target.static):
            # the seed of a draw with given inputs says nothing
            yield verify.example(Draw(sizes, "plain", 0), run.prepared.inputs(odd=odd))


def _answer(run: CellRun, verify: Verifier, stored: Stored, runtime: str, example: Example) -> str | None:
    """Return what is wrong with a runtime's outputs, empty where they are PyTorch's; None where it does not run the
    model or its outputs tell nothing."""
    wanted = example.wanted

    def outputs() -> list[Array]:
        with opener(runtime, config=run.config())(stored.file, run.libraries()) as session:
            return session.run(example.inputs)

    got = or_else(None, outputs)
    if got is None:
        return None
    verify.judge_of(wanted)
    comparison = verify.judged(example, got)
    if comparison.verdict == "failed":
        return f"{comparison.error}, {comparison.text}"
    return "" if comparison.verdict == "verified" else None


def _declared_otherwise(facts: Facts, wanted: Sequence[Array]) -> str:
    """Return which output the model itself declares with another size than PyTorch gives it; empty where none is."""
    known: Mapping[str, Sequence[object] | None] = facts.outputs
    if facts.sequences or len(known) != len(wanted):
        return ""
    for (name, dims), array in zip(known.items(), wanted, strict=True):
        shape = array.shape
        fixed = [(axis, dim) for axis, dim in enumerate(dims or ()) if isinstance(dim, int)]
        if dims is not None and (len(dims) != len(shape) or any(shape[axis] != dim for axis, dim in fixed)):
            return f"the model declares {name} with dims {dims}, PyTorch gives it {list(shape)}"
    return ""
