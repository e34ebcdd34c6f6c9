"""Count what came of ONNX's tests, and write the page about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.common import ROOT, process_ended
from evidence.onnx_tests.try_tests import RUNTIMES, Result, Way

PAGE = ROOT / "docs" / "evidence" / "onnx-tests.md"
NEWEST = 26
"""The last opset that the installed ONNX Runtime reads as finished."""
_TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def verdict_on(result: Result) -> str:
    """Return what is known of a test: verified by a runtime, by the evaluator alone, red, or not verified."""
    if any(result.verified(runtime) for runtime in RUNTIMES):
        return "verified"
    if result.evaluator == "right":
        return "evaluator alone"
    if result.red():
        return "red"
    return "refused" if result.refused else "skipped"


def summarize(results: Sequence[Result]) -> Iterator[str]:
    """Yield the counts, and each red with its proof."""
    counts = Counter(map(verdict_on, results))
    yield f"{len(results):,} models: {', '.join(f'{count:,} {word}' for word, count in counts.most_common())}"
    for runtime in RUNTIMES:
        cells = Counter(of_runtime(result, runtime) for result in results)
        yield f"{_TITLES[runtime]}: {', '.join(f'{count:,} {word}' for word, count in cells.most_common())}"
    false = [(result, cell) for result in results for cell in result.falsely_accused()]
    yield f"reds that blame a runtime which gives the recorded outputs: {len(false)}"
    for result, cell in false:
        yield f"  {result.name} {cell['runtime']} {cell['check']}: {cell['reason'][:200]}"


def of_runtime(result: Result, runtime: str) -> str:
    """Return what came of a test in one runtime."""
    cells = result.of(runtime, "recorded", "accuracy")
    if any(cell["status"] == "failed" for cell in cells):
        return "red"
    if result.verified(runtime):
        return "verified"
    return "skipped" if cells else "refused"


def reason(result: Result, runtime: str) -> str:
    """Return why a test was not verified in a runtime, in few words."""
    if result.refused:
        return "refused: " + re.sub(r"'[^']*'", "…", result.refused)[:80]
    if result.opset > NEWEST and runtime == "onnxruntime":
        return f"opset {NEWEST + 1} and above"
    said = next((cell["reason"] for cell in result.of(runtime, "recorded", "accuracy") if cell["reason"]), "nothing")
    for words, short in _SHORT.items():
        if re.search(words, said, re.IGNORECASE):
            return short
    return str(said)[:80]


_SHORT = {
    "nobody gives the recorded": "random, or nobody gives the recorded outputs",
    "open what the standard means": "ONNX's evaluator and another runtime contradict each other",
    "which ONNX leaves open": "a value that ONNX leaves open",
    "lacks a locale": "the host lacks a locale",
    "NumPy lacks it": "a type that NumPy lacks, and that is misread on the way",
    "draws random numbers": "random, or nobody gives the recorded outputs",
    "does not give the recorded outputs": "ONNX's evaluator does not give the recorded outputs",
    "does not (support|take) the model|NOT_IMPLEMENTED": "no kernel or no support",
}


def write_page(results: Mapping[Way, Sequence[Result]], planted: Sequence[Mapping[str, Any]]) -> None:
    """Write the page of what was kept; ``planted`` is what became of wrong kernels."""
    PAGE.write_text("\n".join([*page(results), *_planted(planted)]) + "\n", encoding="utf-8")


def _planted(planted: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not planted:
        return
    found = sum(bool(one["found"]) for one in planted)
    yield ""
    yield f"## Wrong kernels: {found} of {len(planted)} found"
    yield ""
    yield "The last value of what ONNX Runtime computes is off by a hundredth of the largest, in a model of one"
    yield "operator; values are drawn, and nothing recorded is used. None passes. These are not found:"
    yield ""
    yield "| operator | said |"
    yield "|---|---|"
    for one in planted:
        if not one["found"]:
            yield f"| {one['operator']} | {_cell(' '.join(str(one['said']).split())[:160])} |"


def page(results: Mapping[Way, Sequence[Result]]) -> Iterator[str]:
    yield "# ONNX's own tests"
    yield ""
    yield "The models that `onnx.backend.test.case.node` ships with inputs and outputs, in fp32 as given, by"
    yield "`python -m evidence onnx_tests`. *Recorded* runs the recorded inputs, *drawn* values around these too."
    for way, found in results.items():
        if not found:
            continue
        yield ""
        yield f"## {way.capitalize()}: {len(found):,} models"
        yield ""
        yield "| | models |"
        yield "|---|---|"
        for word, count in Counter(map(verdict_on, found)).most_common():
            yield f"| {_WORDS[word]} | {count:,} |"
        yield from _reasons(found)
        yield from _reds(found)
        yield from _by_operator(found)


_WORDS = {
    "verified": "verified in ONNX Runtime or OpenVINO", "evaluator alone": "verified in ONNX's evaluator alone",
    "red": "red in all that run it", "skipped": "not verified, with a reason", "refused": "refused",
}  # fmt: skip


def _reasons(found: Sequence[Result]) -> Iterator[str]:
    yield ""
    yield "| skipped in | why | models |"
    yield "|---|---|---|"
    for runtime in RUNTIMES:
        skipped = [one for one in found if of_runtime(one, runtime) in ("skipped", "refused")]
        for why, count in Counter(reason(one, runtime) for one in skipped).most_common(12):
            yield f"| {_TITLES[runtime]} | {_cell(why)} | {count:,} |"


_OF_EQUAL = (
    "of equal values ONNX wants the lower index first; OpenVINO gives others, as on the recorded data of "
    "top_k_same_values too."
)
_BY_HAND = {
    "test_top_k": _OF_EQUAL,
    "test_top_k_smallest": _OF_EQUAL,
    "test_top_k_negative_axis": _OF_EQUAL,
    "test_maxpool_with_argmax_2d_precomputed_strides": "with storage_order 1 ONNX counts along columns; OpenVINO's "
    "indices are by rows, also for values that all differ: [6, 11, 8, 17] instead of [6, 16, 7, 13].",
    "test_mish": "OpenVINO's Mish of -15 is -5.364e-6; it is -4.589e-6 (float64).",
    "test_erf": "OpenVINO's Erf of 1e-7 is 0; it is 1.128e-7.",
    "test_rnn_seq_length": "ONNX Runtime's RNN makes 2.38e-7 of 2e-7, of which tanh is 2e-7.",
    "test_gru_bidirectional": "ONNX Runtime's GRU is off by 1.8e-7 where its gates leave 3.6e-7.",
    "test_mish_expanded": "OpenVINO's Softplus of -10 is 4.54177e-5, which is log(1 + exp(-10)) in float32; it is "
    "4.54391e-5 (log1p in float64), so that it is off by 5e-4, and Mish with it.",
}
"""What somebody found out about a red that blames a runtime which gives the recorded outputs of that test."""


def _reds(found: Sequence[Result]) -> Iterator[str]:
    red = [(one, cell) for one in found for cell in one.red()]
    yield ""
    false = sum(len(one.falsely_accused()) for one in found)
    yield f"{len(red)} cells are red, of which {false} blame a runtime that gives the recorded outputs."
    named = [(one, cell) for one, cell in red if not process_ended(cell["reason"])]
    if len(named) < len(red):
        yield f"At {len(red) - len(named)} of them the process ended, or ran out of time; these are not named."
    for one in found:
        if not all(process_ended(cell["reason"]) for cell in one.falsely_accused()):
            yield f"Looked at by hand: {one.name}: {_BY_HAND.get(one.name, 'not yet.')}"
    if not named:
        return
    yield ""
    yield "| test | in | at fault | gives the recorded outputs | others that do | what is wrong |"
    yield "|---|---|---|---|---|---|"
    for one, cell in named:
        right = "yes" if cell["runtime"] and one.gives_recorded(cell["runtime"]) else "no"
        others = [each["runtime"] for each in cell["witnesses"] or () if each["answer"] == "agrees"]
        said = " ".join(str(cell["reason"]).removeprefix("test_data_set_0: ").split())[:110]
        where, fault = _TITLES.get(cell["runtime"], cell["check"]), cell["fault"] or "open"
        name = one.name.removeprefix("test_")
        yield f"| {name} | {where} | {fault} | {right} | {', '.join(others)} | {_cell(said)} |"


def _by_operator(found: Sequence[Result]) -> Iterator[str]:
    yield ""
    yield "By operator: models, and of these verified / skipped / red in each runtime."
    yield ""
    yield "| operator | models | ONNX Runtime | OpenVINO | evaluator alone |"
    yield "|---|---|---|---|---|"
    operators: dict[str, list[Result]] = {}
    for one in found:
        operators.setdefault(one.operator, []).append(one)
    for name, own in sorted(operators.items()):
        parts = []
        for runtime in RUNTIMES:
            counts = Counter(of_runtime(one, runtime) for one in own)
            parts.append(f"{counts['verified']} / {counts['skipped'] + counts['refused']} / {counts['red']}")
        alone = sum(verdict_on(one) == "evaluator alone" for one in own)
        yield f"| {name} | {len(own)} | {' | '.join(parts)} | {alone} |"


def _cell(text: str) -> str:
    """Return a text as it may stand in a cell of a table: at most some words, and no sign that ends the cell."""
    words = text.replace("|", "/").replace("<", "‹").replace("`", "'").split()
    return " ".join(words[:24])
