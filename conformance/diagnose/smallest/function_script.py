"""The reproduction of a defect by a function, for whoever mends the exporter: by torch, ONNX Runtime and NumPy, and
what it imports from beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.diagnose.smallest.extracted_function import Function
from conformance.diagnose.smallest.function_trial import RAISES, REFUSED, STOPS, FunctionTrials
from conformance.diagnose.smallest.lines import exporting, feeding, module, modules_of
from conformance.diagnose.smallest.reproduction import (
    VALUES,
    Reproduction,
    ending,
    literal,
    raising,
    running,
    script,
)
from conformance.results.records.sanitize import one_line


def reproduction(
    function: Function, trials: FunctionTrials, calls: Sequence[str], of: int, *, by_evaluator: bool
) -> Reproduction | None:
    """The script about a function that failed last, with its issue; None where it would be too long. It ``calls``
    operators, ``of`` as many in the whole program, and ``by_evaluator`` ONNX's evaluator gives what ONNX Runtime
    does."""
    how, kind = trials.how, trials.kind
    arrays = {**function.arrays, **{f"{name} as exported": array for name, array in function.traced.items()}}
    texts = {name: literal(array) or f"values['a{number}']" for number, (name, array) in enumerate(arrays.items())}
    apart = {f"a{number}": array for number, array in enumerate(arrays.values()) if literal(array) is None}
    traced = {name: texts[f"{name} as exported"] for name in function.traced}
    exports = [*exporting(function, how)]
    if kind == RAISES:
        end = raising(exports, "it exports", trials.error.partition(":")[0])
    elif kind == REFUSED:
        checks = ["onnx.checker.check_model(model, full_check=True)"]
        end = [*exports, *raising(checks, "the checker accepts it")]
    else:
        end = [*exports, *running({}), *ending(kind, trials.allowed(), "run('ORT_DISABLE_ALL')")]
    reads = [f"values = np.load(Path(__file__).with_name({VALUES!r}))"] if apart else []
    lines = [*module(function), "", *reads, *feeding(function, texts, traced), *end]
    modules = modules_of(function, how)
    text = script(lines, modules)
    if text is None:
        return None
    code = ", ".join(f"`{name}`" for name in how.code(function.own))
    who = f"{_EXPORTERS[how.exporter]} with {code}" if code else _EXPORTERS[how.exporter]
    return Reproduction(
        text,
        f"{who} {_WRONG.get(kind, 'gives wrong values')} for {one_line(', '.join(calls), 120)}",
        [*_ruled_out(function, trials, calls, of, by_evaluator=by_evaluator)],
        ("torch", "onnxscript", "onnx", "onnxruntime", "numpy"),
        apart,
        modules,
        [f"It imports the file of {code} from beside it."] if function.own else [],
        [_EXPECTED.get(kind, "Expected is what PyTorch computes, actual what ONNX Runtime computes of the "
                                   "exported model.")],
    )  # fmt: skip


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


def _ruled_out(
    function: Function, trials: FunctionTrials, calls: Sequence[str], of: int, *, by_evaluator: bool
) -> Iterator[str]:
    runs = trials.kind not in (RAISES, REFUSED)
    these = "this one call" if len(calls) == 1 else f"these {len(calls)} calls"
    yield f"Other operators: the function has {these}, of {of} in the module that it was found in."
    if runs:
        yield "ONNX Runtime's optimizer: it is switched off."
    if by_evaluator:
        yield "ONNX Runtime's kernels: ONNX's reference evaluator computes the same of the exported model."
    if trials.kind == "values":
        yield f"Rounding: the outputs are off by more than {trials.limit:.1g} of their largest value."
    if function.traced:
        yield "Sizes are not: it is exported at other sizes than those that it is run at, which are open."
    if not function.dynamic:
        run = ", and it is run at those that it was exported with" if runs else ""
        yield f"Dynamic sizes: all sizes are fixed{run}."
    if not function.own and trials.how.own:
        yield "Symbolics and translations of the user's own: none is registered."
