"""Write what is ready to be reported of other software: each wrong answer once, on the smallest input that shows it.

A reproduction needs nothing of this package, and is run when the page is made: what it prints stands below it.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.common import HEAD, ROOT, Row
from conformance.process.errors import UserError
from conformance.results.records.operator_table import EXPORTERS
from evidence.operators import DATA

FILE = Path(__file__).parent / "entries.yaml"
PAGE = ROOT / "docs" / "evidence" / "wrong-answers.md"
SECONDS = 120.0
QUICK = 2
EXPORTED = """import io, onnxruntime, torch

class Net(torch.nn.Module):
    def forward(self, {names}):
        return {call}

inputs = ({inputs},)
{export}
session = onnxruntime.InferenceSession({model})
given = {{one.name: value.numpy() for one, value in zip(session.get_inputs(), inputs)}}
print("expected:", Net()(*inputs).tolist())
print("seen:", session.run(None, given)[0].tolist())"""
BY = {
    "torchscript": (
        "torch.onnx.export(Net(), inputs, file := io.BytesIO(), dynamo=False, opset_version=17)", "file.getvalue()",
    ),
    "dynamo": (
        "program = torch.onnx.export(Net(), inputs, dynamo=True, opset_version=20, verbose=False)",
        "program.model_proto.SerializeToString()",
    ),
}  # fmt: skip
"""By exporter the call of it, and the model that comes out."""
RUN = """import numpy, onnx.parser, onnxruntime

text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) {{ {model} }}'
session = onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
x = {inputs}
print("expected:", ({wanted}).tolist())
print("seen:", session.run(None, {{"x": x}})[0].tolist())"""

CALLED = """import torch

x = {inputs}
print("expected:", {wide}.float().tolist())
print("seen:", {call}.tolist())"""
"""Of PyTorch itself, what float64 gives in place of float32."""


@dataclass(frozen=True)
class WrongAnswer:
    """Hold one wrong answer, and what shows it: a call that is exported or made, or a model that is run as it is."""

    title: str
    fault: str
    """``exporters``, ``PyTorch``, or a runtime's name."""
    place: str
    of: Mapping[str, Sequence[str]]
    """By exporter the operators whose samples are wrong for this reason."""
    inputs: Sequence[str]
    call: str = ""
    model: str = ""
    wanted: str = ""
    known: str = ""
    """The script of ``findings`` that is about it."""

    def scripts(self) -> Iterator[tuple[str, str]]:
        """Yield who is wrong, and the Python that shows it."""
        inputs = ", ".join(self.inputs)
        if self.model:
            yield self.fault, RUN.format(model=self.model, inputs=inputs, wanted=self.wanted)
        elif not self.of:
            wide = self.call.replace("(x", "(x.double()")
            yield self.fault, CALLED.format(inputs=inputs, wide=wide, call=self.call)
        for exporter in self.of if self.call else ():
            export, model = BY[exporter]
            names = ", ".join("xyzvw"[: len(self.inputs)])
            yield (
                f"the {EXPORTERS[exporter]} exporter",
                EXPORTED.format(names=names, call=self.call, inputs=inputs, export=export, model=model),
            )


@dataclass(frozen=True)
class Shown:
    """Hold a wrong answer with what its reproductions printed."""

    answer: WrongAnswer
    printed: Sequence[tuple[str, str, str]]
    """Each with the one at fault, the script, and its output."""


def entries() -> tuple[list[WrongAnswer], dict[str, str]]:
    """Return the wrong answers of the file, and by operator why others are not ready to be reported."""
    said = YAML(typ="safe").load(FILE)
    return [WrongAnswer(**one) for one in said["entries"]], dict(said["not_ready"])


def wrong_rows() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the worst that was measured of each wrong operator, by exporter and operator."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for operator, samples in json.loads(DATA.read_text(encoding="utf-8"))["operators"].items():
        for sample in samples:
            for exporter in EXPORTERS:
                found = sample.get(exporter, {})
                if found.get("outcome") == "wrong":
                    rows.setdefault((exporter, operator), found)
    return rows


def run(script: str) -> str:
    """Return what a reproduction prints. Raises UserError where it fails, or where nothing is wrong any more."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith(("expected:", "seen:"))]
    if done.returncode or len(said) != 2:
        raise UserError(f"a reproduction stops: {(done.stderr.strip().splitlines() or ['no output'])[-1]}\n{script}")
    if said[0].partition(":")[2] == said[1].partition(":")[2]:
        raise UserError(f"nothing is wrong any more, {said[0]}:\n{script}")
    return "\n".join(said)


@functools.cache
def study(quick: bool) -> list[Shown]:
    """Run all reproductions, or those of the first entries."""
    answers, _ = entries()
    return [
        Shown(one, [(who, script, run(script)) for who, script in one.scripts()])
        for one in (answers[:QUICK] if quick else answers)
    ]


def rows(quick: bool) -> Iterator[Row]:
    shown = study(quick)
    yield Row("wrong answers that are ready to be reported", str(len(shown)), f"{len(wrong_rows())} wrong rows")
    for fault, count in Counter(one.answer.fault for one in shown).most_common():
        yield Row(f"at fault: {fault}", str(count), f"{len(shown)} wrong answers")
    yield Row("reproductions that were run and are wrong", str(sum(len(one.printed) for one in shown)), "")


TEXT = """# Wrong answers that are ready to be reported

Made by `tox run -e dev -- python -m evidence wrong_answers`: the wrong rows of [PyTorch's
operators](operators.md) by cause, each with a small input that shows it. A reproduction needs
nothing of this package, and ran as the page was made. *Known* is a script of
`findings/`, which has what else is known; no tracker was searched.

{table}

## Not ready

{not_ready}

{sections}

{where}
"""


def write(where: str) -> None:
    """Write the page; ``where`` says on what host and with which versions."""
    shown, (_, not_ready) = study(False), entries()
    table = "\n".join((HEAD, *(row.line() for row in rows(False))))
    reasons = (f"| `{name}` | {why} |" for name, why in not_ready.items())
    others = "\n".join(("| operator | why |", "|---|---|", *reasons))
    sections = "\n\n".join(map(section, shown))
    PAGE.write_text(TEXT.format(table=table, not_ready=others, sections=sections, where=where), encoding="utf-8")


def section(shown: Shown) -> str:
    """Return the part of the page about one wrong answer."""
    answer, measured = shown.answer, wrong_rows()
    head = "| at fault | place | operators | measured | known |\n|---|---|---|---|---|"
    of = "; ".join(f"{EXPORTERS[exporter]}: {', '.join(names)}" for exporter, names in answer.of.items())
    worst = [measured[exporter, name] for exporter, names in answer.of.items() for name in names]
    said = ", ".join(sorted({one["error"] for one in worst})) or "by the symbolics' cases"
    known = f"[finding](../../findings/{answer.known}.sh)" if answer.known else "not searched"
    by_exporters = " and ".join(EXPORTERS[exporter] for exporter in answer.of) if answer.call else ""
    who = by_exporters or answer.fault
    parts = [f"## {answer.title}", f"{head}\n| {who} | {answer.place} | {of} | {said} | {known} |"]
    parts += [
        f"By {by}:\n\n```python\n{script}\n```\n\n```text\n{printed}\n```" for by, script, printed in shown.printed
    ]
    return "\n\n".join(parts)
