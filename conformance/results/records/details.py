"""The lines that explain a record: what was declared of the cell, what else is known of where it stopped, what to do.

Lines hold what cases, models and exceptions say; whoever shows them makes them harmless
(``results.records.sanitize``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from conformance.results.records import earlier
from conformance.results.records.brief import Told
from conformance.results.records.hints import hints
from conformance.results.records.location import located
from conformance.results.records.location import number as number
from conformance.results.records.record import Record
from conformance.results.records.record_types import Beyond, Blind, Declared, Hidden, Vanished
from conformance.results.records.sanitize import shorten
from conformance.results.records.subject import is_file_alone, is_of_file, right_one
from conformance.results.records.testimony import asked, title


def details(record: Record) -> list[str]:
    """Return what explains the status of a record, line by line; a record of an early version holds these lines."""
    return earlier.details(record) or [
        *_dropped(record),
        *_warned(record),
        *_compiled(record),
        *_computed(record),
        *builds_again(record),
        *_expected(record),
        *_neighbours(record),
        *_stopped(record),
        *_blind(record),
        *_unmatched(record),
        *_conditioned(record),
        *left_open(record),
        *_beyond(record),
        *asked(record),
        *located(record.operator),
        *_explained(record),
        *_to_look_at(record),
        *_changed(record),
    ]


def draws_not_run(records: Sequence[Told]) -> Iterator[str]:
    """Yield which cells of a run had kept failing draws that could not be read, and how many lacked the time for
    some of their examples."""
    for record in records:
        for line in _dropped(record):
            yield f"{record.id}: {line}"
    hurried = [record.left_out for record in records if record.left_out]
    if hurried:
        count, seconds = sum(one["examples"] for one in hurried), max(one["seconds"] for one in hurried)
        cells = "1 cell" if len(hurried) == 1 else f"{len(hurried)} cells"
        yield f"{cells} left out {count:,} examples, as {seconds:g} s were over; --budget gives more"


def _dropped(record: Told) -> Iterator[str]:
    count = record.dropped_draws
    if count:
        draws = "1 kept failing draw" if count == 1 else f"{count} kept failing draws"
        yield f"{draws} could not be read and {'was' if count == 1 else 'were'} dropped"


def _compiled(record: Record) -> Iterator[str]:
    """Yield what a builder took of a model in a check that runs nothing."""
    told = record.compiled
    if told:
        targets = " and ".join(told.get("targets") or ())
        done = f"parsed and built by {told['by']} for {targets}" if targets else f"parsed by {told['by']}"
        yield f"{done if told['parsed'] else 'not parsed by ' + told['by']}; nothing was run"


def _computed(record: Record) -> Iterator[str]:
    """Yield what computed the outputs where no runtime did."""
    if record.check == "meaning" and record.arithmetic:
        yield f"computed by {record.arithmetic.get('provider')}; no kernel of TensorRT ran"


def builds_again(record: Record) -> Iterator[str]:
    """Yield the commands of NVIDIA's own tools that do the same builds."""
    commands = [
        (record.arithmetic or {}).get("command"),
        *((record.compiled and record.compiled.get("commands")) or ()),
    ]
    yield from (f"the same build by NVIDIA's tool: {command}" for command in commands if isinstance(command, str))


def _warned(record: Record) -> Iterator[str]:
    """Yield what somebody says against the model without being right, or without deciding on this cell."""
    for warning in record.warnings:
        if warning["name"] != "shape inference":  # of another version
            yield f"warning: {warning.get('text')}"
            continue
        yield f"warning: only ONNX's shape inference refuses the model: {warning.get('text')}"
        agree = warning.get("agree") or []
        if agree:
            titles = " and ".join(map(title, agree))
            whose = "the file's" if is_of_file(record) else "PyTorch's"
            yield f"  {titles} {'give' if len(agree) > 1 else 'gives'} {whose} shapes and values with it"


def declaration(place: str, stage: str, error: str | None) -> str:
    """A declared failure of a whole cell, at its file and line."""
    return f"{place} declares that it fails at stage {stage}" + (f" with {error}" if error else "")


def _expected(record: Record) -> Iterator[str]:
    """Yield what was declared of the cell, and whether it happened."""
    if record.observed is not None:
        yield f"found: {record.observed}"
    otherwise = _declared(record, "otherwise")
    if otherwise:
        said = [declaration(entry["place"], entry["stage"], entry["error"]) for entry in otherwise]
        yield f"declared otherwise: {' and '.join(said)}"
    for entry in _declared(record, "confirmed"):
        yield f"fails as declared at {entry['at']}: {entry['because']}"
    for entry in _declared(record, "not run"):
        yield f"declared to fail, and not run: {entry['dims']}"
    if record.no_bundle is not None:
        yield f"no bundle could be left: {_NO_BUNDLE.get(record.no_bundle, record.no_bundle)}"


_NO_BUNDLE = {
    "inside": "a replay compares outputs, which show nothing of this; conformance align does, where PyTorch is",
}


def _declared(record: Record, outcome: str) -> list[Declared]:
    return [entry for entry in record.declared if entry["outcome"] == outcome]


def _neighbours(record: Record) -> Iterator[str]:
    """Yield what ran before a cell that fails only after others."""
    after = record.after
    if not after or "alone" not in after:  # else it is not known yet how it ends alone
        return
    did = {"passed": "passes", "xfailed": "fails as declared", "skipped": "is skipped"}
    yield f"alone, in a fresh process, it {did.get(str(after['alone']), after['alone'])}"
    cases = ", ".join(after["cases"]) + (f" and {after['others']} more cases" if after["others"] else "")
    cells = "1 cell" if after["cells"] == 1 else f"{after['cells']} cells"
    yield f"in this process it ran after {cells} of: {cases}"
    for case, names in after["changed"].items():
        yield f"of these, {case} changed {', '.join(names)}"
    if not after["changed"]:
        yield "nothing that is watched had been changed, so it may also fail at times by itself"


_OUTCOMES = {
    "put back": "put back",
    "kept": "kept for the cells of this case, which share their process with no other case",
    "left": "not put back, so that no cell ran after it",
}


def _changed(record: Record) -> Iterator[str]:
    """Yield what the case's Python changed in the process that it ran in."""
    for change in record.changed:
        when = "while it was loaded" if change["when"] == "loading" else "while it ran"
        values = f" from {change['before']} to {change['after']}" if change["before"] or change["after"] else ""
        said = {
            "setting": f"changed {change['what']}{values}",
            "function": f"replaced {change['what']}",
            "registry": f"registered {change['what']}",
            "leftover": f"left {change['what']} behind ({change['after']})",
        }.get(change["kind"], change["what"])
        yield f"{when} the case {said}: {_OUTCOMES.get(change['outcome'], change['outcome'])}"


_PLACES = 8
"""Of how many places it is told that their calls are not seen."""


def blind(calls: Sequence[Blind]) -> list[tuple[str, list[str]]]:
    """The places of operator calls that may be wrong without a failure, each with its operators: ``layers.0.norm at
    model.py:12``."""
    places: dict[str, list[str]] = {}
    for entry in calls:
        at = f" at {entry['at']}" if entry.get("at") else ""
        count = f" ({entry['count']} calls)" if entry.get("count", 1) > 1 else ""
        places.setdefault(f"{entry['module'] or 'the module itself'}{at}", []).append(f"{entry['op']}{count}")
    return list(places.items())


def _blind(record: Record) -> Iterator[str]:
    """Yield which operator calls a red ``Hollow`` is about."""
    known = record.coverage
    if record.error != "Hollow" or known is None:
        return
    if known.get("calls"):
        yield f"asked about {known['of']} of {known['calls']} calls, at equal distances"
    unseen = [f"not seen: {place}: {', '.join(operators)}" for place, operators in blind(known["blind"])]
    yield from shorten(unseen, _PLACES, "and at {} more places")
    for place, operators in blind(known.get("beyond") or ())[:_PLACES]:
        yield f"{BEYOND}: {place}: {', '.join(operators)}"
    yield from _hidden(known.get("hidden") or ())


BEYOND = "seen only beyond the values that the case declares (lower `low`, raise `high`)"


def _hidden(states: Sequence[Hidden]) -> Iterator[str]:
    """The outermost submodules of which no output shows anything, with what is known of what they return."""
    paths = {state["module"] for state in states}
    outermost = [state for state in states if not _inside(state["module"], paths)]
    said = {"agrees": "what it returns in the graph agrees", "differs": "what it returns in the graph differs"}
    for state in outermost[:_PLACES]:
        rest = said.get(str(state.get("tensor")), f"what it returns was not compared: {state.get('why')}")
        yield f"no output shows anything of {state['module']}; {rest}"
    if len(outermost) > _PLACES:
        yield f"and of {len(outermost) - _PLACES} more submodules"


def _inside(path: str, paths: Collection[str]) -> bool:
    """Return whether a submodule lies in another one of these."""
    parts = path.split(".")
    return any(".".join(parts[:end]) in paths for end in range(1, len(parts)))


def _stopped(record: Record) -> Iterator[str]:
    """Yield what else is known of the stage at which the cell stopped, and what to do about it."""
    findings = record.findings
    yield from (f"also: {finding}" for finding in findings[1:])
    if findings:
        nodes = (record.graph or {}).get("nodes") or {}
        yield f"the graph has {', '.join(f'{count} {name}' for name, count in nodes.items()) or 'no nodes'}"
    yield from record.output
    yield from _remedy(record)
    yield from hints(record)
    yield from record.traceback


_FACTS = {
    "empty": "it has no values",
    "constant": "it is {value} in every example",
    "independent": "it is the same in all examples of a shape, whatever the inputs",
    "equal rows": "its rows are all equal in every example",
    "close": "its values lie closer together than is allowed",
}
_REMEDIES = {
    "draws": "try more draws of values, with which each of these is refused",
    "values": "try these values, with which {good}",
    "weights": "these parameters are all zero: {parameters}; try random ones, with which each of these is refused",
    "nodes": "no exporter can know {lacks}, an operator of the case's own; say what it becomes, under export",
    "tolerance": "try the default tolerance, with which each of these is refused",
    "tolerance to declare": "if that is what the module is like, declare how far float32 is off",
    "specials": "where NaN and infinities spread to all outputs, leave them out",
    "excuse": "neither more draws nor other finite values or weights show more; if that is right, say so",
    "excuse of finite values": "no finite values show more; NaN and infinities do, which the check specials draws "
    "(unless specials: false). If that is enough, say so",
    "excuse untried": "there was no time to try other values or weights; if it is right that nothing shows, say so",
}
"""What to try first, by the kind of a remedy; the text to paste follows."""


def _remedy(record: Record) -> Iterator[str]:
    """Yield what an output that proves nothing is like, and what to try first."""
    fact = record.vacuous and record.vacuous.get("fact")
    if fact and fact["name"] in _FACTS:
        yield _FACTS[fact["name"]].replace("{value}", number(fact.get("value")))
    remedy = record.remedy
    if not remedy:
        return
    whose = "the file's" if is_of_file(record) else "PyTorch's"
    good = "each of these is refused" if record.vacuous else f"{whose} float32 is finite and close to float64"
    words = _REMEDIES.get(remedy["kind"], remedy["kind"]).replace("{good}", good)
    words = words.replace("{lacks}", str(remedy.get("lacks")))
    yield words.replace("{parameters}", ", ".join(remedy.get("parameters") or ())) + ":"
    if remedy.get("yaml"):
        yield f"  {remedy['yaml']}"
    python = remedy.get("python")
    if python:
        yield f"  in {remedy.get('file')}:"
        yield from (f"    {line}" for line in python.splitlines() if line)


def _beyond(record: Record) -> Iterator[str]:
    """Yield where a converted model leaves the range of its format; the last entry of a failure is its own."""
    entries = record.beyond
    own = entries[-1:] if record.error in ("WrongNaN", "WrongInf") else []
    undeclared = "nobody asked for" if is_file_alone(record) else "the case does not declare"
    for entry in entries[: len(entries) - len(own)]:
        first = f", first at {_node(entry)}" if entry.get("node") else ""
        yield (
            f"{entry['regime']} values, which {undeclared}, do not fit: NaN or infinite where the "
            f"right ones are not{first}"
        )
    for entry in own:
        if entry.get("node"):
            of = " and ".join(number(value) for value in entry.get("of") or ())
            yield (
                f"{_node(entry)} is the first to give {entry['gives']}{f' of {of}' if of else ''}, "
                "where the fp32 model has a number"
            )
        vanished = entry.get("vanished")
        if vanished:
            what = f"the constant {vanished['constant']}" if vanished.get("constant") else _node(vanished)
            yield f"before it {what} became 0, which was up to {number(vanished['was'])}"
        yield from ((record.conversion or {}).get("underflow") or ())[:5]


def _node(entry: Beyond | Vanished) -> str:
    return f"{entry.get('operator')} {entry.get('node')}"


def _unmatched(record: Record) -> Iterator[str]:
    rows = record.rows or {}
    if rows.get("unmatched"):
        total = rows["unmatched"] + rows.get("matched", 0)
        yield f"in the examples that were right, {rows['unmatched']} of {total} rows of boxes had no match"


def _conditioned(record: Record) -> Iterator[str]:
    """Yield how far float32 is off, and at which sizes the examples agree all the same."""
    told = record.conditioning
    if not told:
        return
    if told.get("own") is not None:
        yield f"{right_one(record)} in float32 is off by up to {number(told['own'])} from float64 in this output"
    sizes = told["sizes"]
    if not any(size["verified"] for size in sizes):
        total = sum(size["ill_conditioned"] for size in sizes)
        yield f"at none of {len(sizes)} sizes does any of {total} examples agree by the ordinary tolerance"
        return
    for size in sizes[:_SIZES]:
        dims = ", ".join(f"{name}={value}" for name, value in size["dims"].items()) or "its fixed shapes"
        count, of = size["verified"], size["verified"] + size["ill_conditioned"]
        worst = size.get("worst")
        closest = f", with an error of {worst:.2g} of what is allowed at most" if count and worst else ""
        yield f"at {dims}: {count} of {of} examples agree{closest}"
    if len(sizes) > _SIZES:
        yield f"and at {len(sizes) - _SIZES} more sizes"


def _explained(record: Record) -> Iterator[str]:
    """Yield what explanations say that anybody may add."""
    for entry in record.explained:
        if entry.get("error"):
            yield f"the explanation {entry['by']} raised {entry['error']}"
        else:
            yield f"{entry.get('text')} (by the explanation {entry['by']})"


_SIZES = 8
"""At how many sizes it is said how the examples came out."""


def _to_look_at(record: Record) -> Iterator[str]:
    own: Sequence[str] = record.own_code
    if own:
        place = record.place or {}
        yield f"the export used the case's own {', '.join(own)}: look there first"
        if place.get("own"):
            yield f"  at {place['file']}:{place['line']}"
    yield from (f"{name} = {value}" for name, value in record.inputs.items())
    for entry in _declared(record, "another"):
        yield f"line {entry['line']} declares another failure there: stage {entry['stage']}, {entry['error']}"


RULES = {
    "kernels": "PyTorch's own kernels contradict each other there (fused or not, oneDNN or not, vectors or not)",
    "cast": "NaN, an infinity or a number out of range was cast to an integer, or NaN to a float that has none, "
    "which is undefined (C++ [conv.fpint], ONNX Cast)",
    "quantizer": "NaN, an infinity or a number out of range was quantized by way of an integer, which is undefined "
    "(C++ [conv.fpint])",
    "tie": "a value to be quantized lies between two steps up to rounding, and goes either way",
    "ties": "which of equal values come first is left open (torch.topk, torch.sort, torchvision.ops.nms, ONNX "
    "MaxPool)",
    "pool": "a window held a NaN, and ONNX does not say what its largest value is then (MaxPool)",
    "zeros": "which of two zeros with different signs is the larger is left open (IEEE 754, ONNX Max, Relu, Clip)",
    "overlap": "boxes overlap by just the threshold, or have equal scores, and ONNX does not say which of them stays "
    "(NonMaxSuppression)",
    "written twice": "several values were written to one place, which ONNX forbids without a word on which one stays "
    "(ScatterElements, ScatterND)",
    "no range": "values that are all 0 were quantized by their own range, which divides 0 by 0 (ONNX "
    "DynamicQuantizeLinear)",
    "transform": "a Fourier transform met NaN or infinities, of which each algorithm makes something else",
    "matrix": "a matrix with NaN or infinities was factored, which LAPACK leaves undefined",
    "order": "a product or a sum overflows, or a product vanishes, in some orders of its factors or terms and not in "
    "others, and their order is nowhere defined",
    "place": "values were sampled at a place that is NaN or infinite, which is undefined as an index (C++ "
    "[conv.fpint])",
    "search": "a sequence was searched that does not ascend, which torch.bucketize and searchsorted leave undefined",
    "boxes": "boxes or scores that are NaN or infinite were compared, of which torchvision.ops.nms says nothing",
    "corners": "a box had its corners the other way round, and torchvision.ops.nms expects x1 < x2 and y1 < y2",
    "rounding": "rounding decides between values, or numbers of values, that are far apart",
    "unstable": "a unit in the last place, or what 16 bits do not hold, decides whether there is a number",
}
"""By the names that ``Record.left_open`` has."""


def left_open(record: Record) -> Iterator[str]:
    """The rules by which no verdict was given on some values, in words."""
    for name in record.left_open:
        rule = RULES.get(str(name), name)
        rule = re.sub(r"torch[\w.]*, (?=.*ONNX)", "", rule) if is_of_file(record) else rule  # ONNX's own is left
        yield f"no verdict on some values: {rule}"
