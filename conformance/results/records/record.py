"""The record of one cell: what every report and gate is computed from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from typing_extensions import Self

from conformance.results.records import record_types
from conformance.results.records.validation import Trusted, as_json, check_of

Status = Literal["passed", "failed", "xfailed", "xpassed", "skipped"]


def cell_label(case: str, exporter: str, opset: int, runtime: str | None, precision: str) -> str:
    """``asinh-torchscript-op17-onnxruntime-fp32``; a precision that goes without saying is left out."""
    parts = [case, exporter, f"op{opset}"]
    if runtime is not None:
        parts.append(runtime)
    if runtime is not None or precision != "fp32":
        parts.append(precision)
    return "-".join(parts)


def cell_id(check: str, label: str) -> str:
    """``accuracy[asinh-torchscript-op17-onnxruntime-fp32]``"""
    return f"{check}[{label}]"


Answer = Literal["agrees", "nearer", "strays", "wrong", "otherwise", "runs", "same", "stops", "abstains", "lost"]
"""What a witness says of a failing example. ``agrees``, ``wrong``: it computes what PyTorch computes, or not.
``nearer``: it is off too, but by a small part of what the runtime that failed is, so that it computes something else.
``strays``: it computes what PyTorch does, which is not what the nodes of the model say.
``otherwise``: its outputs are wrong, and others than those that failed.
``runs``: it runs what another runtime stops at, though its values are wrong. ``same``: its outputs are bit for bit
those that failed. ``stops``, ``abstains``: it cannot run the model, or be asked. ``lost``: it crashed or hung."""

FLOAT64 = "pytorch-float64"
"""The witness that tells PyTorch's own rounding: the module in float64."""


@dataclass(frozen=True)
class Witness:
    """The answer of a runtime that was asked about a failing example."""

    runtime: str
    answer: Answer
    error: str | None = None
    """The name of the error with which the witness stops."""
    reason: str | None = None
    """Why it abstains."""
    config: Mapping[str, str] | None = None
    """The session options that the witness alone was given; or ``activations``, in another type of which it ran."""
    model: str | None = None
    """``exported`` where the witness ran the model before its conversion; None for the model that failed."""

    def as_dict(self) -> dict[str, object]:
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(slots=True)
class Identity:
    """Identify the cell, and say how it is run again."""

    id: record_types.Id
    """check and cell: `accuracy[asinh-torchscript-op17-onnxruntime-fp32]`"""
    case: str
    exporter: str
    opset: int
    runtime: str | None
    precision: str
    check: str
    """which cell; runtime is null for `export`, `registration` and `fidelity`"""
    source: record_types.Place
    """file and line of the case"""
    command: str | None = None
    """what runs this cell alone"""
    fingerprint: str | None = None
    """a hash of all that the cell depends on: what the case says, its files, this package's code, versions,
    processor, `--examples`"""


@dataclass(slots=True)
class Verdict(Identity):
    """Say what happened: a status, where it stopped, and what its examples showed."""

    status: Status = "passed"
    """passed, failed, xfailed (failed as declared), xpassed, skipped"""
    stage: str | None = None
    error: str | None = None
    reason: str | None = None
    """where it stopped, the name of the error, one line; null when passed"""
    caused_by: str | None = None
    """the name of what an exporter stopped at, where its own `error` only passes that on"""
    undecided: bool = False
    """of a skipped cell: it ran, and what it ran shows neither right nor wrong; false where the host cannot run it"""
    doubted: str | None = None
    """of a skipped cell: the `error` of a failure that nobody is to blame for"""
    observed: str | None = None
    """of a failure that is declared: what it failed with; `reason` is then what the declaration says"""
    declared: list[record_types.Declared] = field(default_factory=list)
    """what was declared of the cell and came out in another way, or of some of its examples: a list by `outcome`:
    `otherwise` (place, stage, error: a failure of another kind is declared), `confirmed` (at, because: examples
    failed as declared), `works` (place or line, because: nothing failed as declared), `another` (line, stage, error:
    these examples fail in another way), `not run` (dims: a replay leaves examples out)"""
    declared_for: dict[str, list[str]] | None = None
    """of a failure that is declared for some hosts: their processors (`has`, `lacks`), and `versions` of packages"""
    findings: list[str] = field(default_factory=list)
    """all that is wrong with a graph; `reason` is the first"""
    warnings: list[record_types.Warned] = field(default_factory=list)
    """what was said against the model and does not decide: a list with `name` (`shape inference`: it alone refuses
    the model, and runtimes run it; `export`: the exporter, of a model that is wrong), `error`, `text`, and in the
    cell `export` who was asked and gives PyTorch's values, `agree`"""
    output: list[str] = field(default_factory=list)
    """of a process that ended: the last lines that it wrote, then where it was"""
    traceback: list[str] = field(default_factory=list)
    """of a mistake in the harness"""
    signal: str | None = None
    """how the process ended: a signal, an exit code, a timeout, the memory that it took, an answer that was none"""
    examples: int = 0
    ill_conditioned: int = 0
    nothing: int = 0
    """draws verified; too ill-conditioned to judge (half of an output is excused); mostly NaN on both sides"""
    left_out: record_types.LeftOut | None = None
    """how many `examples` were not run, as the `seconds` of `--budget` were over"""
    excused: int = 0
    """values off by more than is allowed and [excused](comparison.md#when-float32-itself-is-off): float32 itself is
    off there, or at fp16 and int8 [the conversion](precision.md#two-questions)"""
    left_open: list[str] = field(default_factory=list)
    """names of the rules by which [nobody can be right](comparison.md#what-is-left-open) on some of these"""
    dropped_draws: int = 0
    """failing draws kept from earlier runs that could not be read, and were dropped"""
    outputs: list[str] = field(default_factory=list)
    """the names that the case gives its outputs, which sentences call them by; empty where it gives none"""
    rows: dict[str, int] | None = None
    """of rows of boxes: how many were `matched` and `unmatched`, in the examples that were right"""
    worst: record_types.Worst | None = None
    """output, index, got, wanted, error, ratio (error / allowed, below 1 passes), rounding (error relative to what
    another order of the same sums explains), dims, `differ` (how many of how many values are wrong); of an output of
    indices, which `got` and `wanted` are then, `looked_up`: what stands there (`got`, `wanted`, `in` what)"""
    draw: record_types.Drawn | None = None
    """dims, regime, seed, index of the worst or failing example"""
    inputs: dict[str, str] = field(default_factory=dict)
    """the inputs of the failing example by name, each in a few words"""
    histogram: dict[str, list[float]] | None = None
    """how many examples have their largest error (over what is allowed) between which powers of ten"""
    after: record_types.After | None = None
    """of a cell that failed after others in the same process and was not run alone yet, or fails only after them
    (`OnlyAfter`): how many `cells` ran before it, their `cases` (the last ones first, and the number of `others`),
    what these `changed` by case; once it ran alone `stage` and `error` as it failed, and its status `alone`"""
    reused: bool = False
    """whether `--reuse` took the record over from an earlier run"""


@dataclass(slots=True)
class Diagnosis(Verdict):
    """Say why it failed, and what to do: all of it is found after the verdict, and none of it changes that."""

    fault: str | None = None
    """exporter, runtime, precision, reference, case, preparation, harness, or null"""
    place: record_types.Place | None = None
    """where the exception was raised, the process crashed, or the first of `own_code` is written: `file`, `line`, and
    whether that is the case's `own` Python; null where no line is known"""
    unexplained: bool = False
    """true of a failure that nobody was asked about yet: time was up, it is declared, or its run was broken off"""
    explained_with: str | None = None
    """the cell of the same cause whose explanation this one has"""
    witnesses: list[record_types.Answered] = field(default_factory=list)
    """who was asked about a failing example, in this order: `runtime` (`pytorch-float64` is the module in float64);
    `answer`: agrees, nearer (off too, by less than a tenth of what failed), strays (PyTorch's values, which the nodes
    of the model do not say), wrong, runs (what another stops at, with wrong values), same (bit for bit what failed),
    stops (with `error`), abstains (with `reason`), lost (it crashed or hung, with `error`); `config` where it had
    other session options, `model` where it ran another model (`exported`: before its conversion)"""
    conclusion: str | None = None
    """what follows from the answers besides `fault`: `optimizer` (ONNX Runtime's optimizer breaks it), `memory` (it
    is right where ONNX Runtime uses no memory twice), `strictness` (the runtime is too strict, or the evaluator not
    strict enough), `open` (model or runtime), `setting` (an option trades accuracy), `steps` (of a quantized file:
    its own steps explain as much), `nobody` (nobody else could be asked), `unsaid` (no rule), `apart` (of an
    ill-conditioned example: others agree, this runtime alone is off); by the nodes: `kernel` (that of the runtime is
    wrong), `kernels` (one is, and the model too), `nodes` (all compute what others do), `meaning` (ONNX Runtime's do
    not compute what the int8 model means), `rules`, `invalid` (the model breaks ONNX's rules), `unsupported` (it
    keeps them, and the runtime has no kernel); null where they speak for themselves"""
    parts_at: record_types.Node | None = None
    """the node that the conclusion is about: `node`, `operator`, `line` (of Python, if known), `how`: parts (`by`
    computes other values of the same inputs), open (none computes it), breaks (its inputs break the operator's rules,
    `why`), unsaid (ONNX has none), stops (`why`), refused (by the parser or builder of a runtime, `why`), parsed (to
    layers of another meaning, `why`), differs (from another file, `why`), invalid (all of it, `why`)"""
    optimizer: record_types.Optimizer | None = None
    """where an optimizer is at fault, its guilty pass: `of` (onnxruntime), `level` (the lowest level of optimization
    that fails), `changed` (how many names were suspected), `passes` (without which the outputs are right: one, or the
    smallest set; empty where none could be named), `alone` (whether that pass by itself breaks the model that all
    others leave right), `helpers` (without which the outputs are right too, but which break nothing by themselves),
    `together` (true where `passes` are all that are needed, of which none breaks anything by itself), `removed` and
    `added` (nodes before and after it; `more` are not told), `unfinished` (time ran out)"""
    operator: record_types.OperatorFields | None = None
    """of a failure that is the exporter's, or may be: the first operator at which PyTorch and the graph part, though
    what it computes of is the same. `operator` (`aten.floor_divide`; `within`: what it was decomposed to), `line`,
    the path of its `file` and `source` of the user's Python, `module` (path of the submodule), `stage` (capture,
    translation, optimizer: the exporter's own passes), `node`, its `type`, `tensor` and `dtype`, `sizes` (true for
    numbers that sizes are computed with), `among` (the nodes that compute the tensor of what agrees, where there are
    several: any may be the wrong one), `change` (of that node, with which all that the operator computes is right,
    for this example, others, and the ties, zeros, halves, small and large values that PyTorch's own operator is asked
    about; `(but not for NaN)` says what is wrong with it), what it `lacks` where the change adds that alone, `others`
    (changes that do as well, each with its node), `removed` (true for a node that the exporter's optimizer merged
    into others), `rules` (of that optimizer, which made the node), `passes` (of the exporter's own, without which the
    model stays right); `how`: value (`index` of the first element that differs, `got`, `wanted`, the `arguments` of
    that element, `differ`: how many of how many elements do), shape, dtype, stops (with `detail`), constant (it was
    captured with `got`, which here is `wanted`), path (the module goes another way here), number or path (it is
    captured with `got` for one input and not for the other, as `x * 1` is not), raises (the exporter stops at it;
    where that is in its passes, `passes` alone are known), crashes (the exporter's process ends at it), refused
    (onnx.checker refuses its node); `inside`: the operator whose branch it is in; `untied`: operators just before it
    whose values the graph does not have; `place`: file (`line` is in one), call (no file has it; `call`: which of how
    many calls of that operator), node (alone it is known); `breaks`: the rule that its node breaks. `second`: what is
    still wrong where that operator gives what it should, with the same fields, `other_inputs` (true where it shows
    with other inputs of the case only), or `unable`: nothing. Or `unable`, why none is named, with `detail`: torch
    (it is built otherwise), instruments, changed (exporting again gives another graph), program, inputs, outputs,
    exporter, decomposition, capture, again, interpreted, nothing (no operator by itself explains the failure),
    vanished (it does not fail node by node), whole (the checker refuses the model, and no node by itself), raised"""
    smallest: record_types.Smallest | None = None
    """where the exporter is at fault and `operator` names one, the smallest PyTorch function that fails alike,
    without ONNX Runtime's optimizer (`as`: the cell of the same case that has it, for the same operator): `calls` of
    `of` are left, their `operators`, `own_code` (the case's symbolics and translations that it takes, whose files lie
    beside the script), `repro` and `issue`, or `why_not`: capture (it was captured wrongly, which no call shows),
    call (`detail` cannot be written as Python), right (neither the call alone nor those before it fail, which were
    exported and run; `differs`: in what the cell is unlike them: sizes, dims, optimizer), untried (the call cannot be
    exported by itself), libraries, time, length. Of an export that fails undeclared, the smallest function that
    cannot be exported either, and of a model that the checker refuses one that it refuses too, or `why_not`:
    uncaptured (the exporter stops before it has captured a program), exported (each call is exported by itself).
    Where ONNX Runtime or OpenVINO is at fault, the smallest model that fails alike: `nodes` of `of` are left, their
    `operators`, `bundle` (its folder), `repro` (a script that showed the defect in a process of its own) and `issue`
    (the text to report), or `why_not`; `passes` of the optimizer that break it, how many models were `tried`,
    `seconds`, `unfinished` (time ran out)"""
    explained: list[record_types.Explained] = field(default_factory=list)
    """of a failure of its outputs that is not declared, what explanations say of it that decide nothing: `by` which
    one, its `text`, or the `error` that it raised"""
    own_code: list[str] = field(default_factory=list)
    """code of the case's own that the export used and that may be behind it; `fault` is `case` where it made
    the first wrong `operator`, else the exporter may be at fault too"""
    cause: record_types.Cause | None = None
    """what a runtime's wrong or weak answer was *shown* to come from: `name` (saturation, setting), `shown_by` (the
    option that heals it), `lacks` (instruction sets), `costs` (SQNR in dB that a setting leaves); else null"""
    loss: dict[str, Trusted] | None = None
    """of a failed comparison: SQNR in dB by stage (export, conversion, optimizer, runtime), or the error it stops
    with"""
    beyond: list[record_types.Beyond] = field(default_factory=list)
    """of a converted model: kinds of values (`regime`) of which it makes NaN or infinities where PyTorch's outputs
    are finite; `node` and `operator` that do so first, what they give (`gives`: NaN or infinity) and of which values
    (`of`); `vanished`: the constant or node before it whose values became 0, and the largest that did (`was`). The
    last entry of a failure is its own; others are told, and no failure, as the case does not declare such values"""
    conditioning: record_types.Conditioning | None = None
    """of an ill-conditioned example (`IllConditioned`): the element in `float64`, `own` (how far PyTorch's float32 is
    off in this output at most), `sizes`: how many examples of each size were verified and ill-conditioned, and the
    `worst` of those verified over what is allowed"""
    vacuous: record_types.Vacuous | None = None
    """of an output that proves nothing: `output`, `passes` (the wrong outputs that would have passed), `fact` (what
    it is like, by `name`: empty, constant with its `value`, independent of the inputs, equal rows, close)"""
    remedy: record_types.Remedy | None = None
    """what to try first where a cell proves nothing, after it was tried on PyTorch: `kind` (values, draws, weights,
    tolerance, tolerance to declare, specials, excuse, excuse of finite values, excuse untried; or nodes, of an
    operator of the case's own, which it `lacks`), `yaml` to paste into the case, `python` for a `file` beside it, the
    `parameters` that are all zero"""
    hints: list[str] = field(default_factory=list)
    """what to do, by name: branch, conditioning, exclude, hollow, hollow inputs, memory, report, rounding, slow,
    specials, symbolic, translation, vacuous"""


@dataclass(slots=True)
class Measured(Diagnosis):
    """Hold what was measured on the way, and what is kept of it."""

    coverage: record_types.Coverage | None = None
    """of an accuracy cell: how many operator calls of the PyTorch module are `seen` in the outputs, `of` how many
    that were asked about; `calls`, where there are more; `blind`, those that are not seen: `module` (path), `at`
    (file and line), `op`, `count`; `places`, where more of them were found than are listed; `beyond`, like `blind`,
    those that show, or do anything, only beyond the values that the case declares; `hidden`, the submodules of which
    no output shows anything: `module` (path), `tensor` (agrees or differs in the exported graph, null where it was
    not compared), `why`; `unknown` where nothing can be said: varies (calls differ from run to run), raises
    (`why`)"""
    graph: record_types.Graph | None = None
    """opset, nodes by operator, `sha`: a hash of operators, attributes, wiring and small constants, without names,
    doc strings and weights, equal on any host; `bytes` with weights"""
    shipped: str | None = None
    """the name of the file that runs, where a module or another file says what is right"""
    meaning: str | None = None
    """the name of the file that says what is right, in place of a module"""
    arithmetic: dict[str, object] | None = None
    """provider, optimizer, storage and arithmetic dtype; of a converted model the kernels that really ran; of an
    engine the `command` of NVIDIA's trtexec that builds it again"""
    fidelity: record_types.Fidelity | None = None
    """of a converted model: output, SQNR in dB, cosine, magnitude, worst channel and rows, values that stand out
    (`apart`); or the share of integers that changed"""
    metric: record_types.Scored | None = None
    """of the check `metric`: score `before` (PyTorch) and `after`, `drop` in points, its `interval`, what is
    `allowed`, how many `samples` there are and `changed`; of the ten that changed most (`flipped`) the scores"""
    conversion: dict[str, Any] | None = None
    """tool, calibration (source, samples, batch, sha), nodes kept in fp32, what was found"""
    engine: dict[str, object] | None = None
    """of the check `engine`: layers with their milliseconds, seconds and rows a second by batch size"""
    compiled: record_types.Compiled | None = None
    """of `parse` and `build`, in which nothing is run: `by` which TensorRT, whether the model was `parsed`,
    `targets` that an engine was built for, and what was `refused`: `code` and `text` of the parser (`BUILD` for the
    builder's), its `function`, `operator` and `node`, the functions and bodies that the node is `inside` of, the
    `line` of Python, whether this TensorRT only `lacks` the operator; `taken` names other models of the case that
    were tried and taken; `commands` of NVIDIA's tensorrt_rtx do the same builds"""
    latency: record_types.Latency | None = None
    """of a budget of time: budgets with ratio, interval and verdict, durations of both sides, throughput, the host"""
    seconds: dict[str, float] = field(default_factory=dict)
    """all that the cell took: by stage, and for reference, run, compare, coverage, locate, `second place` (looking
    for it), `explain` (all of it, where that was done after the verdicts); `rest`, what else its process did for it;
    `process`, what passed until its process ended or it had run again in a fresh one; `start`, starting it"""
    bundle: str | None = None
    """where the failing example lies, to be replayed without PyTorch"""
    bundle_libraries: list[str] = field(default_factory=list)
    """the custom-operator libraries and plugins in that bundle, which a replay runs only with `--allow-libraries`"""
    no_bundle: str | None = None
    """why no bundle of the failing example could be left: the error, or `inside` (of `WrongInside`: a replay compares
    outputs, which show nothing of it)"""


@dataclass(slots=True)
class Host(Measured):
    """Say where it ran, what it changed there, and what it depends on."""

    worker: record_types.Worker | None = None
    """the worker of a cluster that ran the cell: its `name`, its `host`, its processor as `cpu`; null without
    `--cluster`"""
    changed: list[Annotated[Any, check_of(record_types.Changed)]] = field(default_factory=list)
    """what the case's Python changed in its process: a list with `what` (mostly the function that sets it), `kind`
    (setting, function: one that was replaced, registry: an entry that decides on exports, as a symbolic or a
    decomposition, leftover: threads, open files), `when` (loading: while its Python was imported or its module built;
    running), `before`, `after`, `outcome`: put back, kept (for the other cells of the case, which share their process
    with no other case), left (not put back). No cell runs in a process in which another has changed something as it
    ran. Of environment variables only the names are told"""
    depends: record_types.Depends | None = None
    """what the cell used, as far as it was observed: `files` with a hash of each (names are relative to the case's
    folder where they lie near it; `folder/*` is all files of a folder), `parts` (of files with lowerings or
    symbolics, the functions and constants that the export used), `folders` whose names were listed, `missing` files
    that were looked for, `modules` that would be imported if they were there, `packages` besides those of every cell,
    what the `lowerings` of the exporter register, `variables` of the environment, facts of the `host`, and what is
    `fleeting`: another at each run, or not to be observed ([depends](depends.md)). `says` is a hash of what the case
    says, `conditions` one of what every result depends on; the header's `conditions` has these one by one"""
    again: list[str] = field(default_factory=list)
    """in a run with `--reuse`, why the cell was run and not taken over: the first five things that are not as they
    were"""


@dataclass(slots=True)
class Record(Host):
    """The results of one cell, in five groups; seconds are wall time.

    ``error`` is the name that a ``fails`` entry matches. No field but ``reason`` holds sentences:
    ``results.records.text`` makes them of the others. A text below a field is about it and those above it that have
    none; the tables of ``docs/records.md`` are made of these. A run file has the fields of all groups beside one
    another. Each group is a base of the next, since classes with slots cannot be joined otherwise.
    """

    unknown: dict[str, Any] | None = field(default=None, compare=False)
    """What a file of another version has beside these fields; it is written again as it was."""

    def add_rest(self, name: str, seconds: float) -> None:
        """Count as ``name`` what is left of the ``seconds`` that the cell has taken."""
        rest = seconds - sum(self.seconds.values())
        if rest > 0:
            self.seconds[name] = self.seconds.get(name, 0.0) + round(rest, 6)

    def as_dict(self) -> dict[str, object]:
        """Plain values only, as a run file holds them; NaN and infinities as text, which JSON lacks."""
        return {name: as_json(getattr(self, name)) for name in FIELDS} | (self.unknown or {})

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """The inverse of ``as_dict``. A field that is missing or null, as in an earlier version, has its default."""
        known = {name: values[name] for name in FIELDS if values.get(name) is not None}
        record = cls(**(_LACKED | known))
        record.source = {"file": None, "line": None, **record.source}
        if len(known) < len(values):
            record.unknown = {name: value for name, value in values.items() if name not in _NAMES} or None
        return record


GROUPS = (Identity, Verdict, Diagnosis, Measured, Host)
FIELDS = tuple(item.name for item in dataclasses.fields(Host))
"""The names of all fields, as they follow one another in a run file."""
_NAMES = frozenset(FIELDS)
_LACKED: dict[str, Any] = {"runtime": None, "precision": "fp32", "source": {}}
"""What a file of an earlier version may lack and no field has as its default."""


def empty_fields() -> dict[str, Any]:
    """Return an empty list or object for each field that has one where nothing is said of it."""
    made = ((item.name, item.default_factory) for item in dataclasses.fields(Host))
    return {name: make() for name, make in made if callable(make)}


def own_fields(group: type) -> list[dataclasses.Field[object]]:
    """Return the fields of one group, without those of the groups before it."""
    return [item for item in dataclasses.fields(group) if item.name in group.__annotations__]
