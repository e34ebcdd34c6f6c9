"""``conformance align``: the first operator whose value in the graph is not what it is in PyTorch; of an ONNX file,
the first node whose value in a runtime is not what the file, or the one that it was made of, means."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.front.commands import add_cases, add_store
from conformance.process.errors import UserError, display_path
from conformance.results.records.sanitize import tell
from conformance.runtimes import registry

if TYPE_CHECKING:
    from conformance.front.commands.align.table import AlignAnswer

RUNTIMES = tuple(
    runtime.name for runtime in registry.RUNTIMES if runtime.inside or not (runtime.builds or runtime.only_builds)
)

_EPILOG = """Without --at, --values and --seed it looks at the example with which a cell of the model failed
when it ran last, or else at one of the sizes of the export; of files at the first that fails of those that
'conformance check' draws."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "case", nargs="+", metavar="CASE|FILE",
        help="name of the case, with the values of vary where it has them; or an ONNX file, whose tensors are "
        "compared with what the file means, or a file and another that was made of it",
    )  # fmt: skip
    parser.add_argument("--exporter", choices=("torchscript", "dynamo"), help="default: the first that the case has")
    parser.add_argument("--opset", type=int, help="default: the first that the case has")
    parser.add_argument(
        "--precision", help="fp16, int8 or a variant (default: fp32, or what the second file was converted to)"
    )
    add_cases(parser)
    parser.add_argument(
        "--runtime", choices=RUNTIMES,
        help=f"what computes the graph (default: {registry.LITERAL}, ONNX Runtime node by node with its optimizer "
        "off, since showing tensors changes what the optimizer merges; onnxruntime for a file by itself)",
    )  # fmt: skip
    parser.add_argument("--at", metavar="DIM=N,...", help="sizes, as in batch=2,h=64; others as in the export")
    parser.add_argument("--values", metavar="REGIME", help="kind of values (default: plain)")
    parser.add_argument("--seed", type=int, help="seed of the values; the default is made of the case's name")
    for name, what in (("dim", "sizes of an open dim"), ("input", "the values of an input")):
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="NAME=VALUE",
            help=f"of files: {what}, as for 'conformance check'; repeatable",
        )  # fmt: skip
    parser.epilog = f"{_EPILOG}\n\n{parser.epilog}"
    parser.add_argument("--all", action="store_true", help="show every operator, also those not found in the graph")
    parser.add_argument(
        "--node-data", type=Path, metavar="FILE", help="also write each node's error and colour for Model Explorer"
    )
    add_store(parser)


def run(given: argparse.Namespace) -> int:
    """0, or 1 where PyTorch and the graph part."""
    from conformance.front.commands.align.answer import align
    from conformance.front.commands.align.question import AlignQuestion
    from conformance.front.commands.align.table import show

    files = _files(given)
    question = AlignQuestion(
        given.case[0], given.cases or [Path("cases")], given.store / "models", files=files, dims=given.dim,
        inputs=given.input, exporter=given.exporter, opset=given.opset, precision=given.precision,
        runtime=given.runtime or ("onnxruntime" if len(files) == 1 else registry.LITERAL), at=given.at,
        values=given.values, seed=given.seed,
    )  # fmt: skip
    answer = align(question)
    show(answer, everything=given.all)
    if given.node_data is not None:
        _paint(answer, given.node_data)
    if not answer.parts and answer.failed:
        print(
            f"so {answer.failed} did not fail by an operator of the graph alone: its runtime may compute otherwise "
            "what is right here, which --runtime shows"
        )
    elif not answer.parts and not question.names_example and not files:
        print(
            "that is one example, as no failing one of this model is kept: run its cells first, or give --at, "
            "--values and --seed what stands in the line 'smallest example'"
        )
    return int(answer.parts)


def _paint(answer: AlignAnswer, file: Path) -> None:
    from conformance.front.commands.align.table import node_data

    file.write_text(json.dumps(node_data(answer), indent=1) + "\n", encoding="utf-8")
    options = "--extensions=model_explorer_onnx", f"--node_data_paths={file}"
    command = shlex.join(["model-explorer", display_path(answer.model), *options])
    tell(f"wrote {file}, which is shown by: {command}")


def _files(given: argparse.Namespace) -> list[Path]:
    """Return the ONNX files, none where a case is named. Raises UserError for more of either."""
    files = [Path(name) for name in given.case if name.endswith(".onnx")]
    if len(given.case) > 1 and (len(files) < len(given.case) or len(files) > 2):
        raise UserError("align: name one case, or one ONNX file, or one and another that was made of it")
    if not files and (given.dim or given.input):
        raise UserError("--dim and --input are for ONNX files; a case says them itself, and --at names sizes")
    return files
