"""``conformance align``: the first operator whose value in the graph is not what it is in PyTorch."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.front.commands import add_cases, add_option, add_store
from conformance.runtimes import registry

RUNTIMES = tuple(
    runtime.name for runtime in registry.RUNTIMES if runtime.inside or not (runtime.builds or runtime.only_builds)
)

_EPILOG = """Without --at, --values and --seed it looks at the example with which a cell of the model failed
when it ran last, or else at one of the sizes of the export."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", help="name of the case, with the values of vary where it has them")
    parser.add_argument("--exporter", choices=("torchscript", "dynamo"), help="default: the first that the case has")
    parser.add_argument("--opset", type=int, help="default: the first that the case has")
    add_option(parser, "--precision", "fp32", "fp16, int8 or a variant")
    add_cases(parser)
    parser.add_argument(
        "--runtime", default="onnxruntime-literal", choices=RUNTIMES,
        help="what computes the graph (default: %(default)s, ONNX Runtime node by node with its optimizer off, since "
        "showing the tensors inside changes what the optimizer merges)",
    )  # fmt: skip
    parser.add_argument("--at", metavar="DIM=N,...", help="sizes, as in batch=2,h=64; others as in the export")
    parser.add_argument("--values", metavar="REGIME", help="kind of values (default: plain)")
    parser.add_argument("--seed", type=int, help="seed of the values; the default is made of the case's name")
    parser.epilog = f"{_EPILOG}\n\n{parser.epilog}"
    parser.add_argument("--all", action="store_true", help="show every operator, also those not found in the graph")
    add_store(parser)


def run(given: argparse.Namespace) -> int:
    """0, or 1 where PyTorch and the graph part."""
    from conformance.front.commands.align.answer import align, show
    from conformance.front.commands.align.question import AlignQuestion

    question = AlignQuestion(
        given.case, given.cases or [Path("cases")], given.store / "models", exporter=given.exporter,
        opset=given.opset, precision=given.precision, runtime=given.runtime, at=given.at, values=given.values,
        seed=given.seed,
    )  # fmt: skip
    answer = align(question)
    show(answer, everything=given.all)
    if not answer.parts and answer.failed:
        print(
            f"so {answer.failed} did not fail by an operator of the graph alone: its runtime may compute otherwise "
            "what is right here, which --runtime shows"
        )
    elif not answer.parts and not question.names_example:
        print(
            "that is one example, as no failing one of this model is kept: run its cells first, or give --at, "
            "--values and --seed what stands in the line 'smallest example'"
        )
    return int(answer.parts)
