"""The reproduction of a defect by a small model, for whoever mends ONNX Runtime or OpenVINO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from conformance.compare.excuses import largest_of
from conformance.diagnose.smallest.model_trial import ModelFailure
from conformance.diagnose.smallest.reproduction import (
    WIDEST,
    Reproduction,
    ending,
    literal,
    running,
    running_openvino,
    script,
)
from conformance.process.arrays import Array
from conformance.process.errors import or_else
from conformance.results.records.sanitize import one_line
from conformance.runtimes import registry
from conformance.runtimes.flattening import old
from conformance.runtimes.onnxgraph.cut import Cut
from conformance.runtimes.onnxgraph.reads import all_nodes, copy_of, operator_of

if TYPE_CHECKING:
    from onnx import ModelProto

_WIDTH = 118


def reproduction(cut: Cut, failure: ModelFailure, expected: Sequence[Array]) -> Reproduction | None:
    """The script about a model, for which ``expected`` is right, with its issue. None where it cannot be written in
    few lines, with the model beside it neither."""
    right = _right(failure, cut.model, expected)
    if right is None:
        return None
    atol = [failure.limit * largest_of(array) for array in expected]
    run, call = running(failure.config or {}), "run('ORT_ENABLE_ALL')"
    if failure.runtime == "openvino":
        run, call = running_openvino(), "run()"
    rest = [*run, *right, *ending(failure.kind, atol, call)]
    text = next(filter(None, (script([*model, *rest]) for model in _models(cut))), None)
    if text is None:
        return None
    wrong = "stops at" if failure.kind.startswith("stops") else "gives wrong outputs for"
    passes = " and ".join(failure.passes)
    by = f"graph optimizer ({passes}) " if passes else "graph optimizer " if failure.of_optimizer else ""
    named = one_line(", ".join(map(operator_of, cut.model.graph.node)), 120)
    packages = (failure.runtime, "onnx", "numpy")
    return Reproduction(text, f"[CPU] {by}{wrong} {named}", [*_ruled_out(failure)], packages)


def _ruled_out(failure: ModelFailure) -> Iterator[str]:
    if failure.of_optimizer:
        yield "The kernels: with `ORT_DISABLE_ALL` the same model is right on the same inputs."
    else:
        yield f"The model: {registry.named(failure.right).title} computes the expected outputs from it."
    if failure.passes:
        yield f"Other passes: with `disabled_optimizers={list(failure.passes)}` alone the outputs are right."
    yield f"Rounding: the outputs are off by more than {failure.limit:.1g} of their largest value."


def _models(cut: Cut) -> Iterator[list[str]]:
    """The lines that make ``model`` and ``feeds``: of the model's text, with a line for each node or few lines; or
    of the bundle that the script lies in."""
    written = {name: literal(value) for name, value in cut.arrays.items()}
    nodes = _text(cut.model)
    if nodes is not None and None not in written.values():
        constants = [f"onnx.numpy_helper.from_array({written[name]}, {name!r})," for name in cut.constants]
        more = ["proto.graph.initializer.extend([", *_packed(constants), "])"] if constants else []
        feeds = ", ".join(f"{name!r}: {written[name]}" for name in cut.feeds)
        for lines in (nodes, _packed(nodes)):
            yield [
                "proto = onnx.parser.parse_model('''", *lines, "''')", *more, "model = proto.SerializeToString()",
                f"feeds = {{{feeds}}}",
            ]  # fmt: skip
    yield [
        "here = next(Path(__file__).parent.glob('cells/*/model.onnx')).parent",
        "model = (here / 'model.onnx').read_bytes()",
        "data = here / 'test_data_set_0'",
        f"files = [onnx.load_tensor(data / f'input_{{n}}.pb') for n in range({len(cut.feeds)})]",
        f"feeds = dict(zip({list(cut.feeds)}, map(onnx.numpy_helper.to_array, files), strict=True))",
    ]


def _text(model: ModelProto) -> list[str] | None:
    """A model without its initializers as ONNX writes it; None where that would not be read as the same model, or not
    be plain text in a literal of Python."""
    from onnx import parser, printer

    bare = copy_of(model)
    del bare.graph.initializer[:]
    lines = printer.to_text(bare).strip().split("\n")
    if any("\\" in line or "'''" in line or not line.isprintable() for line in lines):
        return None
    again = or_else(None, lambda: parser.parse_model("\n".join(lines)))
    head = lines.index(">") + 1
    joined = [" ".join(map(str.strip, lines[:head])), *lines[head:]]
    return joined if again is not None and _plain(again) == _plain(bare) else None


def _plain(model: ModelProto) -> ModelProto:
    """The model with ONNX's own domain left out everywhere, which may as well be said to be empty."""
    for one in (*all_nodes(model), *model.opset_import):
        if not one.domain:
            one.ClearField("domain")
    return model


def _packed(items: Sequence[str]) -> list[str]:
    """The items on as few lines as they fit on."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) < _WIDTH:
            lines[-1] += f" {item.strip()}"
        else:
            lines.append(f"    {item.strip()}")
    return lines


def _right(failure: ModelFailure, model: ModelProto, expected: Sequence[Array]) -> list[str] | None:
    if failure.of_optimizer:
        return ["expected = run('ORT_DISABLE_ALL')"]
    if failure.right == "onnx-reference" and not old(model):  # of which it does not know the rules by itself
        return ["expected = ReferenceEvaluator(model).run(None, feeds)"]
    arrays = [literal(array) for array in expected]
    written = f"expected = [{', '.join(map(str, arrays))}]"
    if None not in arrays and len(written) <= WIDEST:
        return [written]
    kept = "next(Path(__file__).parent.glob('cells/*/test_data_set_0'))"  # of the bundle that the script lies in
    files = f"[onnx.load_tensor(right / f'output_{{n}}.pb') for n in range({len(expected)})]"
    return [f"right = {kept}", f"expected = [*map(onnx.numpy_helper.to_array, {files})]"]
