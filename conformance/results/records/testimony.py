"""Describe who was asked about a failure: the answers, what follows from them, and where accuracy is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.results.records.record import FLOAT64, Record
from conformance.results.records.record_types import Answered, Cause, Node, Optimizer, Smallest
from conformance.results.records.subject import is_of_file, right_one
from conformance.runtimes import registry

SHOWN_BEST = "the example that shows it best"
"""What to call the example that a failure of all examples together is told of."""

_CONCLUSIONS = {
    "optimizer": "so the model is right, and {runtime}'s graph optimizer breaks it",
    "strictness": "so it is open whether the runtime is too strict, or the evaluator not strict enough",
    "apart": "so {runtime} alone is off, and it is open whether rounding explains that or {runtime} is wrong",
    "open": "so it is open whether the model or the runtime is wrong",
    "differ": "they contradict each other, so it is open whether the model or the runtime is wrong",
    "rules": "so the model is wrong, whatever a runtime makes of it",
    "invalid": "so the model is no valid ONNX at these sizes",
    "unsupported": "ONNX's checker and inference of shapes accept the model, so it is {runtime} that lacks it",
    "kernel": "with the other value there the outputs are right, so it is {runtime}'s kernel that is wrong",
    "kernels": "with the other value there the outputs are wrong too, so the model is wrong",
    "either": "with the other value there, which {right} does not have, the outputs are wrong too, so it is open "
    "whether the model or {runtime} is wrong",
    "shared": "what runtimes make of NaN and infinities they may share by mistake, so it is open whether the model "
    "or {runtime} is wrong",
    "meaning": "so it is ONNX Runtime's kernels that are wrong: they do not compute what the model means",
    "memory": "with no memory used twice (enable_mem_reuse off) it is right, so it is {runtime} that is wrong",
    "unsaid": "with NaN kept there the outputs are right, so nobody is to blame",
    "nodes": "node by node, others compute what {runtime} computes, so the model is wrong",
    "setting": "so neither the model nor a kernel is wrong",
    "steps": "the file rounds to few bits by itself, and one value on the other side of a step makes as much, "
    "so it is open whether {runtime} is wrong",
    "nobody": "nobody else could be asked, so it is open whether the model or the runtime is wrong",
}
_STAGES_OF_LOSS = {
    "export": "the exported fp32 model against {right}",
    "conversion": "the converted model against the fp32 one",
    "optimizer": "ONNX Runtime's optimizer on, against off",
    "runtime": "the runtime against the model's own semantics",
}


def asked(record: Record) -> Iterator[str]:
    """The witnesses' answers, what follows from them, and where accuracy is lost."""
    witnesses = record.witnesses
    weak = record.error == "IllConditioned"
    yield from (_answer(record, witness, weak=weak) for witness in witnesses if not witness.get("config"))
    yield from conclusion(record)
    yield from guilty_passes(record.optimizer, record)
    yield from _smallest(record.smallest or {})
    yield from _loss(record, SHOWN_BEST if record.fidelity else None)
    for witness in witnesses:
        if witness.get("config"):
            yield _with_options(witness)
            if witness["answer"] == "agrees":
                yield from trade(record)[1:] if record.conclusion == "setting" else advice(record.cause)


def conclusion(record: Record) -> Iterator[str]:
    """Yield the node that an explanation is about, and what follows from the answers."""
    if record.parts_at:
        yield _parting(record.parts_at)
    name = record.conclusion
    if name is not None:
        known = _CONCLUSIONS.get(name)  # another version's is no template
        runtime = title(f"{record.runtime}")
        yield str(name) if known is None else known.format(runtime=runtime, right=right_one(record))


_OPTIMIZERS = {
    "onnxruntime": "ONNX Runtime's optimizer",
}


def guilty_passes(told: Optimizer | None, record: Record) -> Iterator[str]:
    """The pass of an optimizer that is wrong, and the nodes that it changed."""
    if told is None:
        return
    title = _OPTIMIZERS.get(str(told["of"]), str(told["of"]))
    names = list(told["passes"])
    level = f", from level {told['level']} on" if told.get("level") else ""
    right = "the outputs are right" if record.stage == "compare" else "the model runs"
    if not names:
        why = "there was no time to try them all" if told.get("unfinished") else "none is enough to switch off"
        yield f"which pass of {title} it is stays open{level}: {why}"
        return
    if told.get("together"):
        yield f"passes {' and '.join(names)} of {title}{level}: {right} without any one of them; it takes them all"
    elif len(names) > 1:
        yield f"passes {' and '.join(names)} of {title}{level}: {right} without these, and wrong with any one of them"
    elif told.get("alone"):
        yield f"pass {names[0]} of {title}{level}: {right} without it, and with no other pass it fails alike"
    else:
        yield f"pass {names[0]} of {title}{level}: {right} without it; by itself it breaks nothing"
    if told.get("helpers"):
        yield f"  {right} without {' or '.join(told['helpers'])} too, of which none breaks anything by itself"
    removed, added = told.get("removed") or (), told.get("added") or ()
    if removed or added:
        more = f", and {told['more']} more nodes" if told.get("more") else ""
        yield f"  it makes {', '.join(added) or 'nothing'} of {', '.join(removed) or 'nothing'}{more}"


_NO_SCRIPT = {
    "libraries": "it would need the case's own libraries",
    "length": "it would be too long",
    "capture": "the program was captured wrongly, which no call in it shows by itself",
    "call": "Python cannot write {detail} by itself",
    "right": "its call alone is exported rightly, and so it is with those before it",
    "untried": "its call cannot be exported by itself, nor with those before it",
    "time": "there was no time for it",
    "uncaptured": "the exporter stops before it has captured a program",
    "exported": "each of its calls is exported by itself",
}


_DIFFERS = {
    "sizes": "is exported at other sizes than those at which it fails",
    "dims": "has the dims of the case open",
    "optimizer": "goes through the exporter's passes as a whole",
}
"""What is said of a cell beside functions that are right by themselves."""


def _smallest(told: Smallest) -> Iterator[str]:
    """The smallest model or function that still fails, and what shows it."""
    why_not = _NO_SCRIPT.get(str(told.get("why_not")), told.get("why_not"))
    if told.get("differs"):
        differs = " and ".join(_DIFFERS.get(str(one), str(one)) for one in told["differs"])
        why_not = f"{why_not}; unlike these, the model {differs}"
    why_not = str(why_not).replace("{detail}", str(told.get("detail") or "it")) if why_not else None
    operators = ", ".join(told.get("operators") or ())
    far = ", when time ran out" if told.get("unfinished") else ""
    if told.get("as"):
        yield f"smallest PyTorch function that fails alike: looked for in {told['as']}"
    if told.get("bundle"):
        yield f"smallest model that fails alike: {told.get('nodes')} of {told.get('of')} nodes ({operators}){far}"
    elif told.get("calls"):
        calls = f"{told['calls']} of {told.get('of')} calls ({operators}){far}"
        yield f"smallest PyTorch function that fails alike: {calls}"
    elif why_not:
        what = "smaller model" if told.get("seconds") is None else "smaller PyTorch function"
        yield f"no {what} could be made: {why_not}"
        return
    if told.get("repro"):
        yield f"  python {told['repro']} shows it; to report: {told.get('issue') or 'the script itself'}"
    elif why_not:
        place = f"in {told['bundle']}; " if told.get("bundle") else ""
        yield f"  {place}no script shows it by itself: {why_not}"


def _parting(place: Node) -> str:
    """The node that the conclusion is about."""
    if place["how"] == "invalid":
        return f"ONNX's checker or inference of shapes refuses the model: {place.get('why')}"
    line = f" ({place['line']})" if place.get("line") else ""
    name = f"{place['operator']} {place.get('node') or ''}".rstrip() + line
    said = {
        "parts": f"{title(str(place.get('by')))} computes something else of the same inputs",
        "open": "nobody else computes it",
        "alike": f"only {title(str(place.get('by')))} computes the same, which may share what no rule asks for",
        "breaks": f"its inputs break the operator's rules: {place.get('why')}",
        "unsaid": f"{place.get('why')}",
        "refused": f"it is refused: {place.get('why')}",
        "parsed": f"TensorRT's parser makes layers of it that mean something else: {place.get('why')}",
        "differs": f"{place.get('why')}",
        "loses": f"{place.get('why')}",
        "stops": f"the first node that cannot be run: {place.get('why')}",
    }
    return f"at the node {name}: {said.get(place['how'], place['how'])}"


def _answer(record: Record, witness: Answered, *, weak: bool = False) -> str:
    """``weak``: of an example of which float64 excuses an error."""
    right, of_file = right_one(record), is_of_file(record)
    answer, reason = witness["answer"], witness.get("reason")
    if witness["runtime"] == FLOAT64:
        if answer == "agrees":
            return f"{right} in float64 agrees with the runtime, against {right} in float32"
        if reason is not None:
            return f"there is no float64 form: {reason}"
        what, whose = ("file", "its") if of_file else ("module", "PyTorch's")
        return f"the {what} has no float64 form, so {whose} own rounding is not known"
    if witness.get("model") == "exported":
        model = f"the {'' if of_file else 'exported '}fp32 model"
        if answer == "lost":
            return f"whether {model} stops there too is not known: its process ended with {witness.get('error')}"
        return f"{model} stops there too"
    said = {
        "agrees": f"agrees with {right}{' by the ordinary tolerance' if weak else ''}",
        "nearer": f"is off too, but far nearer to {right}",
        "strays": f"gives the values of {right}, which the nodes of the model do not say",
        "wrong": "is off by more than the ordinary tolerance too" if weak else "is wrong too",
        "otherwise": "is wrong too, with other outputs",
        "runs": "runs it, but its outputs are wrong",
        "stops": f"stops with {witness.get('error')}",
        "abstains": f"no opinion, {reason}",
        "lost": f"no answer, it ended with {witness.get('error')}",
    }
    return f"{title(witness['runtime'])}: {said.get(answer, answer)}"


def title(runtime: str, *, brief: bool = False) -> str:
    """Return what sentences call a runtime, or blocks, which have less room."""
    try:
        entry = registry.named(runtime)
        return entry.brief or entry.title if brief else entry.title
    except KeyError:  # the runtime of a record that another version wrote
        return runtime


def proves_nothing_by_stopping(runtime: str) -> bool:
    """Return whether a runtime counts for its values alone: one that lacks operators stops at sound models too."""
    return any(entry.name == runtime and entry.values_only for entry in registry.RUNTIMES)


def _with_options(witness: Answered) -> str:
    """The answer of a runtime where its 8-bit sums cannot saturate."""
    answer, config = witness["answer"], witness.get("config") or {}
    if answer == "abstains" and "activations" in config:
        return "the model has no activations in int8 between Q and DQ, so it is open whether its 8-bit sums saturated"
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
    return f"{title(witness['runtime'])} with {options}: {said.get(answer, answer)}"


def saturates(record: Record) -> bool:
    """Return whether sums of 8-bit kernels that saturate were shown to be the cause of a failure."""
    return record.cause is not None and record.cause["name"] == "saturation" and record.status == "failed"


def advice(cause: Cause | None) -> Iterator[str]:
    if cause is None or cause["name"] != "saturation":
        return
    lacks = cause["lacks"]
    declared = f"fails: [{{when: {{cpu: {{lacks: [{', '.join(lacks)}]}}}}, ...}}]"
    if "activations" in cause["shown_by"]:
        yield f"so its 8-bit kernels saturate: without {' or '.join(lacks)} they add up products in 16 bits, and the"
        yield "session's option for wider kernels does not reach all products of two activations (docs/precision.md)"
        yield "what to do: have activations in uint8, or VNNI, and declare the failure for other processors:"
        yield f"  {declared}"
        return
    shown = {**cause["shown_by"]}
    own_points = shown.pop("zero points", None)
    options = ", ".join(f'{key}: "{value}"' for key, value in shown.items())
    yield f"so its 8-bit kernels saturate: without {' or '.join(lacks)} they add up products in 16 bits"
    yield "what to do, in the case and in the deployment that it stands for; one of these:"
    if "LP_TRANSFORMS_MODE" in cause["shown_by"]:
        yield f"  compile_model(..., {{{options}}})   float32 between Q and DQ, slower"
    else:
        yield f"  onnxruntime: {{config: {{{options}}}}}   wider kernels, slower (docs/precision.md)"
    if own_points:
        yield f"    where each weight has a zero point of its own: else {', '.join(shown)} ends in an error"
    yield "  precisions: {int8: {reduce_range: true}}                  weights of 7 bits, which lose up to 6 dB"
    yield f"  deploy on processors with VNNI, and declare the failure for the others: {declared}"


def trade(record: Record) -> tuple[str, ...]:
    """Say with which setting the outputs are right, what the other value costs, and what to do."""
    cause = record.cause
    if cause is None or cause["name"] != "setting":
        return ("a setting trades accuracy for speed",)
    options = ", ".join(f"{key}={value}" for key, value in cause["shown_by"].items())
    return (
        f"with {options} the outputs are right",
        f"as it is set, {_sqnr(cause.get('costs', 0.0)).strip()} SQNR are left of what it gives then",
        "set that in the deployment too (onnxruntime: config: in a case, --session KEY=VALUE in a check),",
        "or keep what it trades, and declare a tolerance that says why",
    )


def _loss(record: Record, one: str | None) -> Iterator[str]:
    """``one`` is what to call the example that the numbers are of, where other numbers are of all of them."""
    loss: Mapping[str, float | str] = record.loss or {}
    if loss:
        yield "loss by stage, as SQNR (higher is better)" + (f", in {one}:" if one else ":")
    for stage, value in loss.items():
        said, name = _STAGES_OF_LOSS.get(stage, "").replace("{right}", right_one(record)), stage
        if is_of_file(record) and stage == "export":
            said, name = f"the fp32 model as ONNX Runtime computes it, against {right_one(record)}", "file"
        yield f"  {name:<10} {_sqnr(value):>9}   {said}"


def _sqnr(value: float | str) -> str:
    """The text of a number of decibels, which is text already where it is infinite, or the name of an error."""
    known = {"inf": "no loss", "-inf": "all lost"}
    if isinstance(value, str) and value != "nan":
        return known.get(value, value)
    return known.get(str(value), f"{float(value):.1f} dB")
