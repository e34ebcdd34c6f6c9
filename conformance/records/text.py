"""What a record reads like. All text about records is made here.

Fields hold what cases, models and exceptions say. What ``failure`` and ``repetition`` give is harmless to show;
whoever shows ``details`` makes them so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.records.clean import block, command_line, one_line
from conformance.records.record import FLOAT64
from conformance.runtimes import registry

_WHO = {
    "exporter": "the exporter",
    "runtime": "the runtime",
    "precision": "the conversion to this precision",
    "reference": "PyTorch itself",
    "case": "the case",
    "harness": "the harness",
}


def failure(record: Mapping[str, Any]) -> str:
    """Why a cell failed: what differs, the smallest example, stage and fault, where the case stands, how to
    see it again. ``record`` is ``Record.as_dict()``."""
    lines = [*_what(record), *_example(record)]
    fault = f"; at fault: {_WHO.get(str(record['fault']), record['fault'])}" if record["fault"] else ""
    lines.append(f"stage {record['stage']}{fault}")
    lines += [f"  {line}" for line in details(record)]
    return _shown([*lines, *_place(record)])


def repetition(record: Mapping[str, Any], first: str) -> str:
    """In place of ``failure``, on one line, where a cell stopped as ``first`` did, before its own work began."""
    place = f"{record['source']['file']}:{record['source']['line']}"
    said = f"{place}: {record['error']} at stage {record['stage']}, as in {first}: {record['reason']}"
    return one_line(said, _REPEATED)


_REPEATED = 240
"""Characters of a failure that was told in full before."""


def _shown(lines: Sequence[str]) -> str:
    """The lines as one text. What has a line break in it, as the reason of an exception may, goes on indented."""
    return "\n".join(map(block, lines))


def _place(record: Mapping[str, Any]) -> list[str]:
    lines = [f"{record['source']['file']}:{record['source']['line']}: case {record['case']}"]
    if record["command"]:
        lines.append(f"reproduce: {record['command']}")
    replay = replay_of(record)
    return [*lines, *([f"without PyTorch: {replay}"] if replay else [])]


def replay_of(record: Mapping[str, Any]) -> str | None:
    """The command that replays the bundle of a record's failing example; None where it left none."""
    if not record.get("bundle"):
        return None
    libraries = bool(record.get("bundle_libraries"))
    return replay_command(str(record["bundle"]), str(record["runtime"]), libraries=libraries)


def replay_command(bundle: str, runtime: str, *words: str, libraries: bool) -> str:
    """What replays a bundle, for a shell; ``libraries`` is whether the bundle's own code may run."""
    folder = f"./{bundle}" if bundle.startswith("-") else bundle
    allowed = ["--allow-libraries"] if libraries else []
    return command_line(["conformance", "replay", folder, "--runtime", runtime, *allowed, *words])


def _what(record: Mapping[str, Any]) -> list[str]:
    head = f"{record['reason']}" if record["stage"] != "compare" else f"{record['error']}: {record['reason']}"
    if record["status"] == "xpassed":
        return [f"unexpectedly passed: {record['reason']}"]
    worst = record["worst"]
    if record["stage"] != "compare" or worst is None or record["error"] not in _OF_ELEMENTS:
        return [head]
    return [head, _element(record, worst)]


_OF_ELEMENTS = ("IllConditioned", "WrongIndex", "WrongReference", "WrongValue", "WrongNaN", "WrongInf")
"""The errors that are about one element, the worst."""


def _element(record: Mapping[str, Any], worst: Mapping[str, Any]) -> str:
    """The worst element: what a runtime has there, and what is right."""
    index = ", ".join(map(str, worst["index"]))
    place = f"{output_named(record, worst['output'])}[{index}]"
    ratio = worst["ratio"] if isinstance(worst["ratio"], str) else f"{worst['ratio']:.3g}"
    values = worst.get("looked_up")
    if values is not None:
        there = f"where {values['in']} has {_number(values['got'])}"
        wanted = f"where it has {_number(values['wanted'])}"
        return (
            f"{place}: got index {worst['got']}, {there}; wanted index {worst['wanted']}, {wanted} "
            f"({ratio} times what is allowed)"
        )
    if record["error"] == "WrongIndex":
        return f"{place}: got index {worst['got']}, wanted index {worst['wanted']}"
    if record["error"] == "IllConditioned":
        exact = (record.get("conditioning") or {}).get("float64")
        also = "" if exact is None else f"; PyTorch in float64 has {_number(exact)}"
        return f"{place}: got {_number(worst['got'])}, PyTorch in float32 has {_number(worst['wanted'])}{also}"
    return f"{place}: got {_number(worst['got'])}, wanted {_number(worst['wanted'])} ({ratio} times what is allowed)"


def output_named(record: Mapping[str, Any], number: Any) -> str:
    """What sentences call an output of a record: by the name that its case gives it, or else by its number."""
    names: Sequence[str] = record.get("outputs") or ()
    return f"output {names[number] if isinstance(number, int) and 0 <= number < len(names) else number}"


_SHOWN_BEST = "the example that shows it best"
"""What a failure of all examples together is told of."""


def _example(record: Mapping[str, Any]) -> list[str]:
    draw = record["draw"]
    if draw is None:
        return []
    dims = ", ".join(f"{name}={size}" for name, size in draw["dims"].items()) or "fixed shapes"
    which = "example that was running" if record["signal"] else "smallest example"
    if record["error"] == "LowFidelity" and record.get("fidelity"):
        which = _SHOWN_BEST
    flags = f", masks {draw['flags']}" if draw.get("flags") else ""
    return [f"{which}: {dims}; {draw['regime']} values{flags}, seed {draw['seed']}"]


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


# ---- details: what explains a failure ------------------------------------------------------------------------


def details(record: Mapping[str, Any]) -> list[str]:
    """What explains the status of a record, line by line; ``record`` is ``Record.as_dict()``.

    Records of earlier versions hold the lines themselves. A missing field, as in such a record or in a row of a
    report, counts as empty.
    """
    if record.get("details"):
        return list(record["details"])
    return [
        *_dropped(record),
        *_warned(record),
        *_expected(record),
        *_neighbours(record),
        *_stopped(record),
        *_unmatched(record),
        *_conditioned(record),
        *_beyond(record),
        *_asked(record),
        *_to_look_at(record),
        *_changed(record),
    ]


def dropped_draws(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which cells of a run had kept failing draws that could not be read."""
    for record in records:
        for line in _dropped(record):
            yield f"{record['id']}: {line}"


def _dropped(record: Mapping[str, Any]) -> Iterator[str]:
    count = record.get("dropped_draws")
    if count:
        draws = "1 kept failing draw" if count == 1 else f"{count} kept failing draws"
        yield f"{draws} could not be read and {'was' if count == 1 else 'were'} dropped"


def _warned(record: Mapping[str, Any]) -> Iterator[str]:
    """What somebody says against the model without being right, or without deciding on this cell."""
    for warning in record.get("warnings") or ():
        if warning["name"] != "shape inference":  # of another version
            yield f"warning: {warning.get('text')}"
            continue
        yield f"warning: only ONNX's shape inference refuses the model: {warning.get('text')}"
        agree = warning.get("agree") or []
        if agree:
            titles = " and ".join(map(_title, agree))
            yield f"  {titles} {'give' if len(agree) > 1 else 'gives'} PyTorch's shapes and values with it"


def declaration(place: str, stage: str, error: str | None) -> str:
    """A declared failure of a whole cell, at its file and line."""
    return f"{place} declares that it fails at stage {stage}" + (f" with {error}" if error else "")


def _expected(record: Mapping[str, Any]) -> Iterator[str]:
    """What was declared of the cell, and whether it happened."""
    if record.get("observed") is not None:
        yield f"found: {record['observed']}"
    otherwise = _declared(record, "otherwise")
    if otherwise:
        said = [declaration(entry["place"], entry["stage"], entry["error"]) for entry in otherwise]
        yield f"declared otherwise: {' and '.join(said)}"
    for entry in _declared(record, "confirmed"):
        yield f"fails as declared at {entry['at']}: {entry['because']}"
    for entry in _declared(record, "not run"):
        yield f"declared to fail, and not run: {entry['dims']}"
    if record.get("no_bundle") is not None:
        yield f"no bundle could be left: {record['no_bundle']}"


def _declared(record: Mapping[str, Any], outcome: str) -> list[Mapping[str, Any]]:
    return [entry for entry in record.get("declared") or () if entry["outcome"] == outcome]


def _neighbours(record: Mapping[str, Any]) -> Iterator[str]:
    """What ran before a cell that fails only after others."""
    after = record.get("after")
    if not after:
        return
    did = {"passed": "passes", "xfailed": "fails as declared", "skipped": "is skipped"}
    yield f"alone, in a fresh process, it {did.get(after['alone'], after['alone'])}"
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
    "left": "not to be put back, so that no cell ran after it",
}


def _changed(record: Mapping[str, Any]) -> Iterator[str]:
    """What the case's Python changed in the process that it ran in."""
    for change in record.get("changed") or ():
        when = "while it was loaded" if change["when"] == "loading" else "while it ran"
        values = f" from {change['before']} to {change['after']}" if change["before"] or change["after"] else ""
        said = {
            "setting": f"changed {change['what']}{values}",
            "function": f"replaced {change['what']}",
            "leftover": f"left {change['what']} behind ({change['after']})",
        }.get(change["kind"], change["what"])
        yield f"{when} the case {said}: {_OUTCOMES.get(change['outcome'], change['outcome'])}"


_HINTS = {
    "conditioning": "declare values that are better conditioned, or a tolerance and because",
    "exclude": "keep these nodes in fp32 with exclude:, or say why this case has no fp16 with left_out:",
    "report": "this is a mistake in the harness; please report it with these lines:",
    "rounding": "PyTorch's own float32 is too far from float64 to compare with; declare values or a tolerance",
    "slow": "too slow? say examples: or smaller dims, or leave the runtime out with runtimes:",
    "specials": "where NaN and infinities spread to all outputs, say specials: false",
    "vacuous": "give the case inputs or weights that show in this output, or say vacuous: and why",
}


def _stopped(record: Mapping[str, Any]) -> Iterator[str]:
    """What else is known of the stage at which the cell stopped, and what to do about it."""
    findings = record.get("findings") or []
    yield from (f"also: {finding}" for finding in findings[1:])
    if findings:
        nodes = (record.get("graph") or {}).get("nodes") or {}
        yield f"the graph has {', '.join(f'{count} {name}' for name, count in nodes.items()) or 'no nodes'}"
    yield from record.get("output") or ()
    yield from _remedy(record)
    yield from (_HINTS.get(hint, hint) for hint in record.get("hints") or ())
    yield from record.get("traceback") or ()


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
    "tolerance": "try the default tolerance, with which each of these is refused",
    "tolerance to declare": "if that is what the module is like, declare how far float32 is off",
    "specials": "where NaN and infinities spread to all outputs, leave them out",
    "excuse": "neither more draws nor other values or weights show more; if that is right, say so",
}
"""What to try first, by the kind of a remedy; the text to paste follows."""


def _remedy(record: Mapping[str, Any]) -> Iterator[str]:
    """What an output that proves nothing is like, and what to try first."""
    fact = (record.get("vacuous") or {}).get("fact")
    if fact and fact["name"] in _FACTS:
        yield _FACTS[fact["name"]].replace("{value}", _number(fact.get("value")))
    remedy = record.get("remedy")
    if not remedy:
        return
    good = "each of these is refused" if record.get("vacuous") else "PyTorch's float32 is finite and close to float64"
    words = _REMEDIES.get(remedy["kind"], remedy["kind"]).replace("{good}", good)
    yield words.replace("{parameters}", ", ".join(remedy.get("parameters") or ())) + ":"
    if remedy.get("yaml"):
        yield f"  {remedy['yaml']}"
    if remedy.get("python"):
        yield f"  in {remedy.get('file')}:"
        yield from (f"    {line}" for line in remedy["python"].splitlines() if line)


def _beyond(record: Mapping[str, Any]) -> Iterator[str]:
    """Where a converted model leaves the range of its format; the last entry of a failure is its own."""
    entries = record.get("beyond") or []
    own = entries[-1:] if record.get("error") in ("WrongNaN", "WrongInf") else []
    for entry in entries[: len(entries) - len(own)]:
        first = f", first at {_node(entry)}" if entry.get("node") else ""
        yield (
            f"{entry['regime']} values, which the case does not declare, do not fit: NaN or infinite where PyTorch's "
            f"are not{first}"
        )
    for entry in own:
        if entry.get("node"):
            of = " and ".join(_number(value) for value in entry.get("of") or ())
            yield (
                f"{_node(entry)} is the first to give {entry['gives']}{f' of {of}' if of else ''}, "
                "where the exported model has a number"
            )
        vanished = entry.get("vanished")
        if vanished:
            what = f"the constant {vanished['constant']}" if vanished.get("constant") else _node(vanished)
            yield f"before it {what} became 0, which was up to {_number(vanished['was'])}"
        yield from ((record.get("conversion") or {}).get("underflow") or ())[:5]


def _node(entry: Mapping[str, Any]) -> str:
    return f"{entry.get('operator')} {entry.get('node')}"


# ---- who was asked, and what that shows ----------------------------------------------------------------------

_CONCLUSIONS = {
    "optimizer": "so the model is right, and {runtime}'s graph optimizer breaks it",
    "strictness": "so it is open whether the runtime is too strict, or the evaluator not strict enough",
    "apart": "so {runtime} alone is off, and it is open whether rounding explains that or {runtime} is wrong",
    "open": "so it is open whether the model or the runtime is wrong",
    "rules": "so the model is wrong, whatever a runtime makes of it",
    "invalid": "so the model is no valid ONNX at these sizes",
    "unsupported": "ONNX's checker and inference of shapes accept the model, so it is {runtime} that lacks it",
    "kernel": "with the other value there the outputs are PyTorch's, so it is {runtime}'s kernel that is wrong",
    "kernels": "with the other value there the outputs are wrong too, so the model is wrong",
    "meaning": "so it is ONNX Runtime's kernels that are wrong: they do not compute what the converted model means",
    "nodes": "node by node, others compute what {runtime} computes, so the model is wrong",
    "nobody": "nobody else could be asked, so it is open whether the model or the runtime is wrong",
}
_STAGES_OF_LOSS = {
    "export": "the exported fp32 model against PyTorch",
    "conversion": "the converted model against the exported one",
    "optimizer": "ONNX Runtime's optimizer on, against off",
    "runtime": "the runtime against the model's own semantics",
}


def _asked(record: Mapping[str, Any]) -> Iterator[str]:
    """The witnesses' answers, what follows from them, and where accuracy is lost."""
    witnesses = record.get("witnesses") or []
    weak = record.get("error") == "IllConditioned"
    yield from (_answer(witness, weak=weak) for witness in witnesses if not witness.get("config"))
    if record.get("parts_at"):
        yield _parting(record["parts_at"])
    conclusion = record.get("conclusion")
    if conclusion is not None:
        known = _CONCLUSIONS.get(conclusion)  # another version's is no template
        yield str(conclusion) if known is None else known.format(runtime=record.get("runtime"))
    yield from _loss(record.get("loss") or {}, _SHOWN_BEST if record.get("fidelity") else None)
    for witness in witnesses:
        if witness.get("config"):
            yield _with_options(witness)
            if witness["answer"] == "agrees":
                yield from _advice(record.get("cause") or {})


def _parting(place: Mapping[str, Any]) -> str:
    """The node that the conclusion is about."""
    if place["how"] == "invalid":
        return f"ONNX's checker or inference of shapes refuses the model: {place.get('why')}"
    line = f" ({place['line']})" if place.get("line") else ""
    name = f"{place['operator']} {place.get('node') or ''}".rstrip() + line
    said = {
        "parts": f"{_title(str(place.get('by')))} computes something else of the same inputs",
        "open": "nobody else computes it",
        "breaks": f"its inputs break the operator's rules: {place.get('why')}",
        "stops": f"the first node that cannot be run: {place.get('why')}",
    }
    return f"at the node {name}: {said.get(place['how'], place['how'])}"


def _answer(witness: Mapping[str, Any], *, weak: bool = False) -> str:
    """``weak``: of an example of which float64 excuses an error."""
    answer, reason = witness["answer"], witness.get("reason")
    if witness["runtime"] == FLOAT64:
        if answer == "agrees":
            return "PyTorch in float64 agrees with the runtime, against PyTorch in float32"
        if reason is not None:
            return f"there is no float64 form: {reason}"
        return "the module has no float64 form, so PyTorch's own rounding is not known"
    if witness.get("model") == "exported":
        return "the exported fp32 model stops there too"
    said = {
        "agrees": "agrees with PyTorch by the ordinary tolerance" if weak else "agrees with PyTorch",
        "nearer": "is off too, but far nearer to PyTorch",
        "wrong": "is off by more than the ordinary tolerance too" if weak else "is wrong too",
        "runs": "runs it, but its outputs are wrong",
        "stops": f"stops with {witness.get('error')}",
        "abstains": f"no opinion, {reason}",
        "lost": f"no answer, it ended with {witness.get('error')}",
    }
    return f"{_title(witness['runtime'])}: {said.get(answer, answer)}"


def _title(runtime: str) -> str:
    try:
        return registry.named(runtime).title
    except KeyError:  # the runtime of a record that another version wrote
        return runtime


def _unmatched(record: Mapping[str, Any]) -> Iterator[str]:
    rows = record.get("rows") or {}
    if rows.get("unmatched"):
        total = rows["unmatched"] + rows.get("matched", 0)
        yield f"in the examples that were right, {rows['unmatched']} of {total} rows of boxes had no match"


def _conditioned(record: Mapping[str, Any]) -> Iterator[str]:
    """How far float32 is off, and at which sizes the examples agree all the same."""
    told = record.get("conditioning")
    if not told:
        return
    if told.get("own") is not None:
        yield f"PyTorch in float32 is off by up to {_number(told['own'])} from float64 in this output"
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


_SIZES = 8
"""At how many sizes it is said how the examples came out."""


def _with_options(witness: Mapping[str, Any]) -> str:
    """The answer of ONNX Runtime where its 8-bit sums cannot saturate."""
    answer, config = witness["answer"], witness["config"]
    if answer == "abstains":
        return f"this ONNX Runtime has no {', '.join(config)}, so it is open whether its 8-bit sums saturated"
    said = {
        "agrees": "is right",
        "wrong": "is wrong too",
        "same": "the same outputs, so its 8-bit sums did not saturate",
        "stops": f"stops with {witness.get('error')}",
        "lost": f"no answer, it ended with {witness.get('error')}",
    }
    options = ", ".join(f"{key}={value}" for key, value in config.items())
    return f"ONNX Runtime with {options}: {said.get(answer, answer)}"


def _advice(cause: Mapping[str, Any]) -> Iterator[str]:
    if cause.get("name") != "saturation":
        return
    lacks = cause["lacks"]
    options = ", ".join(f'{key}: "{value}"' for key, value in cause["shown_by"].items())
    yield f"so its 8-bit kernels saturate: without {' or '.join(lacks)} they add up products in 16 bits"
    yield "what to do, in the case and in the deployment that it stands for; one of these:"
    yield f"  onnxruntime: {{config: {{{options}}}}}   wider kernels, slower (docs/precision.md)"
    yield "  precisions: {int8: {reduce_range: true}}                  weights of 7 bits, which lose up to 6 dB"
    yield (
        "  deploy on processors with VNNI, and declare the failure for the others: "
        f"fails: [{{when: {{cpu: {{lacks: [{', '.join(lacks)}]}}}}, ...}}]"
    )


def _loss(loss: Mapping[str, float | str], one: str | None) -> Iterator[str]:
    """``one`` is what to call the example that the numbers are of, where other numbers are of all of them."""
    if loss:
        yield "loss by stage, as SQNR (higher is better)" + (f", in {one}:" if one else ":")
    for stage, value in loss.items():
        yield f"  {stage:<10} {_sqnr(value):>9}   {_STAGES_OF_LOSS.get(stage, '')}"


def _sqnr(value: float | str) -> str:
    """The text of a number of decibels, which is text already where it is infinite, or the name of an error."""
    known = {"inf": "no loss", "-inf": "all lost"}
    if isinstance(value, str) and value != "nan":
        return known.get(value, value)
    return known.get(str(value), f"{float(value):.1f} dB")


def _to_look_at(record: Mapping[str, Any]) -> Iterator[str]:
    own: Sequence[str] = record.get("own_code") or ()
    if own:
        yield f"the export used the case's own {', '.join(own)}: look there first"
    yield from (f"{name} = {value}" for name, value in (record.get("inputs") or {}).items())
    for entry in _declared(record, "another"):
        yield f"line {entry['line']} declares another failure there: stage {entry['stage']}, {entry['error']}"
