"""A script and a text about a function, for whoever mends the exporter: ``repro.py`` and ``issue.md``.

The script needs torch, ONNX Runtime and NumPy, and what it imports from beside it. It ends with 1 while the defect
lives and with 0 once it is gone; any other end shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance.diagnose.smallest.extracted_function import Function
from conformance.diagnose.smallest.function_trial import RAISES, REFUSED, STOPS, imports
from conformance.diagnose.smallest.lines import RUN, Exporting, exporting, feeding, module
from conformance.diagnose.smallest.model_script import LIVES, MOST_LINES, Versions, ending, issue_text, literal
from conformance.process.arrays import Array
from conformance.results.records.sanitize import one_line

VALUES = "values.npz"
"""The file of arrays that are too large to be written out."""


@dataclass(frozen=True)
class Shown:
    """A function that fails, and what is known of that."""

    function: Function
    how: Exporting
    kind: str
    limit: float
    allowed: Sequence[float]
    """How far each output may be off."""
    evaluator: bool
    """Whether ONNX's evaluator computes what ONNX Runtime does."""
    calls: tuple[str, ...]
    """The operators that it calls."""
    of: int
    """How many calls the whole program has."""
    error: str = ""
    """The name of the error that the exporter raises, of ``raises``."""


def script(shown: Shown) -> tuple[str, dict[str, Array]] | None:
    """The text of the script, and the arrays that it reads from ``VALUES``; None where it would be too long."""
    function, how = shown.function, shown.how
    traced = {f"{name} as exported": array for name, array in function.traced.items()}
    arrays = {**function.inputs, **function.constants, **traced}
    texts = {name: literal(array) for name, array in arrays.items()}
    apart = {f"a{number}": name for number, name in enumerate(arrays) if texts[name] is None}
    texts |= {name: f"values[{key!r}]" for key, name in apart.items()}
    given = [{name: str(texts[name]) for name in names} for names in (function.inputs, function.constants)]
    given.append({name: str(texts[f"{name} as exported"]) for name in function.traced})
    names = imports(function, how)
    standard = [name for name in names if name in ("io", "math", "operator")]
    raises, runs = shown.kind == RAISES, shown.kind not in (RAISES, REFUSED)
    end = [*RUN, *ending(shown.kind, shown.allowed, "run()")] if runs else _CHECKING
    lines = [
        *(f"import {name}" for name in sorted([*standard, "sys"])), *(["from pathlib import Path"] if apart else []),
        "import numpy as np", *(["import onnx"] if shown.kind == REFUSED and "onnx" not in names else []),
        *(["import onnxruntime as ort"] if runs else []), "import torch",
        *(f"import {name}" for name in names if name not in standard), "", *module(function), "",
        *([f"values = np.load(Path(__file__).with_name({VALUES!r}))"] if apart else []), *feeding(function, *given),
        *(_raising(exporting(function, how), shown.error) if raises else [*exporting(function, how), *end]),
    ]  # fmt: skip
    if len(lines) > MOST_LINES:
        lines = [line for line in lines if line]
    if len(lines) > MOST_LINES or any(len(line) > 400 for line in lines):
        return None
    return "\n".join(lines) + "\n", {key: arrays[name] for key, name in apart.items()}


_CHECKING = [
    "try:", "    onnx.checker.check_model(model, full_check=True)", "except Exception as error:",
    f"    print('{LIVES}:', error)", "    sys.exit(1)", "print('the checker accepts it')",
]  # fmt: skip
"""The end of a script about a model that the checker refuses."""


def _raising(lines: Iterable[str], error: str) -> list[str]:
    """An export that has to raise this error; any other shows nothing."""
    return [
        "try:", *(f"    {line}" for line in lines), "except Exception as error:",
        f"    print('{LIVES}:', type(error).__name__, error)",
        f"    sys.exit(1 if type(error).__name__ == {error!r} else 2)", "print('it exports')",
    ]  # fmt: skip


_EXPORTERS = {"dynamo": "torch.onnx.export(dynamo=True)", "torchscript": "torch.onnx.export(dynamo=False)"}
_WRONG = {
    STOPS: "exports a model that does not run", RAISES: "raises an error",
    REFUSED: "exports a model that onnx.checker refuses",
    "WrongShape": "gives outputs of another shape",
    "WrongDtype": "gives outputs of another dtype", "WrongCount": "gives another number of outputs",
    "WrongLength": "gives a list of another length",
}  # fmt: skip


_EXPECTED = {
    RAISES: "Expected is a model, since PyTorch runs the module; actual is the error.",
    REFUSED: "Expected is a model that onnx.checker accepts; actual is its error.",
}


def issue(text: str, said: str, shown: Shown, versions: Versions, cause: Sequence[str] = ()) -> str:
    """The text for the tracker of the exporter, or for whoever wrote the symbolic or translation that is wrong.
    ``said`` is what the script printed, ``versions`` are those of the packages, ``cause`` is what is known of why."""
    function, how = shown.function, shown.how
    code = ", ".join(f"`{name}`" for name in how.code(function.own))
    who = f"{_EXPORTERS[how.exporter]} with {code}" if code else _EXPORTERS[how.exporter]
    title = f"{who} {_WRONG.get(shown.kind, 'gives wrong values')} for {one_line(', '.join(shown.calls), 120)}"
    usual = "Expected is what PyTorch computes, actual what ONNX Runtime computes of the exported model."
    beside = [f"It imports the file of {code} from beside it."] if function.own else []
    expected = [_EXPECTED.get(shown.kind, usual)]
    return issue_text(title, text, said, _ruled_out(shown), versions, beside=beside, expected=expected, cause=cause)


def _ruled_out(shown: Shown) -> Iterator[str]:
    function, runs = shown.function, shown.kind not in (RAISES, REFUSED)
    calls = "this one call" if len(shown.calls) == 1 else f"these {len(shown.calls)} calls"
    yield f"Other operators: the function has {calls}, of {shown.of} in the module that it was found in."
    if runs:
        yield "ONNX Runtime's optimizer: it is switched off."
    if shown.evaluator:
        yield "ONNX Runtime's kernels: ONNX's reference evaluator computes the same of the exported model."
    if shown.kind == "values":
        yield f"Rounding: the outputs are off by more than {shown.limit:.1g} of their largest value."
    if function.traced:
        yield "Sizes are not: it is exported at other sizes than those that it is run at, which are open."
    if not function.dynamic:
        run = ", and it is run at those that it was exported with" if runs else ""
        yield f"Dynamic sizes: all sizes are fixed{run}."
    if not function.own and shown.how.own:
        yield "Symbolics and translations of the user's own: none is registered."
