"""``conformance sensitivity``: which nodes lose the accuracy."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.front import option_types
from conformance.front.commands import add_cases, add_option, add_store


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", help="name of the case, with the values of vary where it has them")
    add_option(parser, "--precision", "int8", "fp16, int8 or a variant")
    parser.add_argument("--exporter", choices=("torchscript", "dynamo"), help="default: the first that the case has")
    parser.add_argument("--opset", type=int, help="default: the first that is converted")
    add_cases(parser)
    add_option(parser, "--samples", 8, "inputs to measure with", type=option_types.count(1))
    add_option(parser, "--top", 15, "nodes to show", type=option_types.count(1))
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also write it as an SVG file")
    add_store(parser)


def run(given: argparse.Namespace) -> int:
    from conformance.extras.sensitivity.ranking import sensitivity

    sensitivity(given)
    return 0
