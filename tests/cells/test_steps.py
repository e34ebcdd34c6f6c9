"""The check ``steps``: decoders that are run token by token, sound ones and such that go wrong on the way."""

import numpy as np
import pytest

from conformance.case.files.case_file import load
from conformance.case.files.step_plan import step_plan
from conformance.case.plan.catalogue import plan
from conformance.cells.steps import _stale
from conformance.compare.vacuity import Vacuity
from tests.kit.cases import PASSED, problems_of, say, verdict, write_case
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

DECODER = """
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self, vocab=50, wide=16, most=32):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocab, wide), nn.Embedding(most, wide)
        self.qkv, self.head = nn.Linear(wide, 3 * wide), nn.Linear(wide, vocab)

    def forward(self, tokens, past_key, past_value):
        past, seq = past_key.shape[2], tokens.shape[1]
        later = (past_key[0, 0, :, :1] * 0 + 1).sum().clamp(max=1).long()  # 0 without a past, or else 1
        exporting = int(torch.onnx.is_in_onnx_export())
        x = self.embed(tokens) + self.place(torch.arange(seq) + START)
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
        hidden = torch.arange(past + seq) > torch.arange(seq)[:, None] + SEEN
        scores = (q @ k.transpose(2, 3) * 8**-0.5).masked_fill(hidden, float("-inf"))
        y = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.head(y), KEYS, v
"""
SOUND = {"START": "past", "SEEN": "past", "KEYS": "k"}
IN_GRAPH = {
    "positions off by one at later steps": {"START": "past + later * exporting"},
    "one entry too few is seen at later steps": {"SEEN": "past - later * exporting"},
    "the cache off by one": {"KEYS": "torch.roll(k, 1, 2) if exporting else k"},
    "the rows of the cache mixed up": {"KEYS": "torch.roll(k, 1, 0) if exporting else k"},
    "causal without a past alone": {"SEEN": "past + (past + seq) * later * exporting"},
    "nothing new is kept at later steps": {"KEYS": "k * (torch.arange(past + seq)[:, None] < past + seq - later) "
                                                   "if exporting else k"},
}  # fmt: skip
SLOW = ("the cache off by one", "causal without a past alone", "nothing new is kept at later steps")
IN_MODULE = {
    "positions begin anew": {"START": "0"},
    "the past is not hidden right": {"SEEN": "0"},
    "the cache is off by one": {"KEYS": "torch.roll(k, 1, 2)"},
}
BODY = """
module: beside.Decoder
inputs:
  tokens: {type: "int64[batch, seq]", values: {integers: {low: 0, high: 49}}}
  past_key: float32[batch, 2, past, 8]
  past_value: float32[batch, 2, past, 8]
outputs: [logits, present_key, present_value]
dims: {batch: 1..2, seq: 1..4, past: 0..8}
weights: awake
specials: false
examples: {shapes: 0, values: 1, boundary: 3}
"""


def python(**planted: str) -> str:
    text = DECODER
    for name, value in {**SOUND, **planted}.items():
        text = text.replace(name, value)
    return text


def body(steps: str = "3", *more: str) -> str:
    return say(BODY, f"steps: {steps}", *more)


# ---- sound decoders ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", ["3", "{count: 3, reorder: true}", "{count: 2, token: {}}"])
def test_a_sound_decoder_passes(bench, steps):
    record = bench.run(body(steps), python(), check="steps")
    assert verdict(record) == PASSED and record.examples >= 3
    assert record.worst["output"] < 3 * 4 and record.outputs[3] == "logits at step 1"


@pytest.mark.thorough
def test_a_sound_decoder_passes_by_dynamo_and_in_others(bench):
    more = "export: {dynamo: [20]}\nruntimes: [onnx-reference]"
    record = bench.run(body("2", more), python(), check="steps", runtime="onnx-reference")
    assert verdict(record) == PASSED


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_converted_decoder_is_held_to_its_meaning(bench, precision):
    exact = "onnxruntime: {config: {session.x64quantprecision: 1}}"  # else 8 bits saturate on some processors
    said = body("3", f"precisions: {{{precision}: {{}}}}", exact)
    record = bench.run(said, python(), check="steps", precision=precision)
    assert verdict(record) == PASSED


@pytest.mark.own_store
@pytest.mark.parametrize("planted", [{}, IN_MODULE["positions begin anew"]])
def test_a_file_is_run_step_by_step(bench, tmp_path, planted):
    assert bench.run(body("2"), python(**planted), check="export").status == "passed"
    (model,) = bench.store.rglob("model.onnx")
    (tmp_path / "net.onnx").write_bytes(model.read_bytes())
    text = "onnx: net.onnx\nsteps: 2\nexamples: {shapes: 0, values: 1, boundary: 2}"
    (case,) = load(write_case(tmp_path, text))
    (cell,) = (cell for cell in plan(case) if cell.check == "steps")
    record = bench.run_cell(cell)
    assert verdict(record) == (("failed", "declare", "StepsDiffer", "case") if planted else PASSED)


STREAM = """
from torch import nn

class Stream(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 8, batch_first=True)

    def forward(self, x, h):
        return self.gru(x, h)
"""


def test_a_state_without_tokens_is_fed(bench):
    text = """
    module: beside.Stream
    inputs: {x: "float32[batch, seq, 4]", h: "float32[1, batch, 8]"}
    outputs: [y, h_out]
    dims: {batch: 1..2, seq: 1..4}
    steps: {count: 3, feed: {h: h_out}}
    examples: {shapes: 0, values: 1, boundary: 2}
    """
    assert verdict(bench.run(text, STREAM, check="steps")) == PASSED


# ---- what goes wrong -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("planted", [
    pytest.param(change, id=name, marks=[pytest.mark.thorough] * (name in SLOW)) for name, change in IN_GRAPH.items()
])  # fmt: skip
def test_a_graph_that_is_wrong_at_a_step_is_found(bench, planted):
    record = bench.run(body(), python(**planted), check="steps")
    assert verdict(record)[:3] == ("failed", "compare", "WrongValue") and record.fault != "runtime"
    (warned,) = (one["text"] for one in record.warnings if one["name"] == "steps")
    assert warned.startswith("first wrong at step ")


@pytest.mark.parametrize("planted", IN_MODULE.values(), ids=IN_MODULE)
def test_a_module_whose_two_ways_differ_is_at_fault_itself(bench, planted):
    record = bench.run(body(), python(**planted), check="steps")
    assert verdict(record) == ("failed", "declare", "StepsDiffer", "case"), record.reason
    assert "at step 1" in record.reason or "at step 2" in record.reason


def test_keys_and_values_that_are_swapped_in_the_feed_are_found(bench):
    swapped = "{count: 2, feed: {past_key: present_value, past_value: present_key}}"
    record = bench.run(body(swapped), python(), check="steps")
    assert verdict(record) == ("failed", "declare", "StepsDiffer", "case")


def test_a_past_that_no_output_shows_proves_nothing(bench):
    blind = python(SEEN="past) | (torch.arange(past + seq) < past)").replace("hidden = ", "hidden = (")
    record = bench.run(body("{count: 2, at_once: false}"), blind, check="steps")
    assert verdict(record) == ("failed", "compare", "Vacuous", "case")
    assert "zeros in place of the past" in record.reason and "without its last entries" in record.reason


def stuck(inputs, outputs):
    """The cache as it was, with its last entry twice."""
    key = inputs["past_key"]
    if key.shape[2] and inputs["tokens"].shape[1] == 1:
        outputs[1] = np.concatenate([key, key[:, :, -1:]], 2)
    return outputs


def mixed(inputs, outputs):
    if inputs["past_key"].shape[2]:
        outputs[2] = np.roll(outputs[2], 1, 0)
    return outputs


def swapped(inputs, outputs):
    return [outputs[0], outputs[2], outputs[1]] if inputs["past_key"].shape[2] else outputs


@pytest.mark.parametrize("alter", [
    stuck, pytest.param(mixed, marks=pytest.mark.thorough), pytest.param(swapped, marks=pytest.mark.thorough),
])  # fmt: skip
def test_a_runtime_that_is_wrong_at_later_steps_is_at_fault(bench, alter):
    with wrong_runtime(alter, *ANY_OPTIMIZER):
        record = bench.run(body(), python(), check="steps")
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


def odd(inputs, outputs):
    """Keys of which each is odd in its last place; wrong logits where all of a past are."""
    key = inputs["past_key"]
    if key.size and np.all(key.view(np.int32) & 1):
        outputs[0] = outputs[0] + 1
    outputs[1] = (outputs[1].view(np.int32) | 1).view(np.float32)
    return outputs


def test_what_is_wrong_with_its_own_cache_alone_is_found_and_blamed_on_nobody(bench):
    with wrong_runtime(odd, *ANY_OPTIMIZER):
        record = bench.run(body(), python(), check="steps")
    assert verdict(record) == ("failed", "compare", "WrongValue", None)
    assert "each step is right with the cache of PyTorch" in record.reason
    assert "the first token that differs is that of step" not in record.reason  # as all logits are larger by one


def test_tokens_of_near_ties_are_counted_and_open(bench):
    """A head of two equal rows: which of its two tokens is the likeliest is a matter of rounding."""
    twins = python().replace("self.head(y), ", "self.head(y).repeat(1, 1, 2), ")

    def nudged(inputs, outputs):
        outputs[0][..., 50:] = np.nextafter(outputs[0][..., 50:], np.float32(np.inf))
        return outputs

    with wrong_runtime(nudged, *ANY_OPTIMIZER):
        record = bench.run(body("2"), twins.replace("Embedding(vocab", "Embedding(2 * vocab"), check="steps")
    assert verdict(record) == PASSED
    (warned,) = (one["text"] for one in record.warnings if one["name"] == "steps")
    assert "near-ties, and open" in warned and "the first token that differs is that of step 0, row 0" in warned


def test_a_cache_off_by_one_lacks_what_is_new():
    right = np.arange(12.0).reshape(1, 4, 3)
    assert _stale(right[:, :2], right)[0, :, 0].tolist() == [0, 3, 0, 3]
    assert _stale(right[:, :3], right)[0, :, 0].tolist() == [0, 0, 3, 6]
    assert _stale(right + 1, right) is not right


def test_an_output_that_shows_something_at_one_step_shows_it_at_all():
    vacuity = Vacuity([None] * 4)
    vacuity.see([np.ones(1), np.zeros(1), np.zeros(1), np.zeros(1)])
    vacuity.together(2)
    assert "zeros" not in vacuity.findings()[2] and "zeros" in vacuity.findings()[1]


# ---- what is declared ----------------------------------------------------------------------------------------
NAMES = {
    "optimum": ("past_key_values.0.key past_key_values.0.value", "present.0.key present.0.value"),
    "older": ("past_0 past_1", "present_0 present_1"),
    "another order": ("past.0.value past.0.key", "present.0.key present.0.value"),
    "with an encoder": ("past_key_values.1.encoder.key past_key_values.1.decoder.key",
                        "present.1.decoder.key present.1.encoder.key"),
    "paths": ("past_key_values.ddp_cache_data.0.0 past_key_values.ddp_cache_data.0.1",
              "past_key_values.layers.0.keys past_key_values.layers.0.values"),
}  # fmt: skip
TO = {"another order": [1, 0], "with an encoder": [1, 0]}


@pytest.mark.parametrize("which", NAMES)
def test_what_is_fed_is_found_by_name_and_never_by_order(tmp_path, which):
    pasts, presents = (names.split() for names in NAMES[which])
    inputs = ", ".join(f'"{name}": "float32[batch, past]"' for name in pasts)
    text = f"""
    forward: input_ids
    inputs: {{input_ids: {{type: "int64[batch, seq]", values: {{integers: {{low: 0, high: 9}}}}}}, {inputs}}}
    outputs: [logits, {", ".join(presents)}]
    dims: {{batch: 1..2, seq: 1..2, past: 0..9}}
    steps: 2
    """
    (case,) = load(write_case(tmp_path, text))
    found, _ = step_plan(case.says)
    order = TO.get(which, [0, 1])
    assert found.feed == {name: presents[at] for name, at in zip(pasts, order, strict=True)}
    assert found.token == ("input_ids", "logits") and found.along == "seq"


WRONG = {
    "steps: 0": "steps has to be greater than or equal to 1",
    "steps: {count: 2, feed: {past_key: present}}": "there is no output 'present'; did you mean 'present_key'?",
    "steps: {count: 2, feed: {past: present_key}}": "there is no input 'past'",
    "steps: {count: 2, feed: {past_key: present_value}}": "present_value feeds two inputs",
    "steps: {count: 2, token: {past_key: logits}}": "past_key takes a token, and is no int64 or int32",
    "steps: {count: 2, next: {token: count}}": "there is no input 'token'; did you mean 'tokens'?",
    "steps: {count: 2, next: {past_key: same}, feed: {past_value: presen}}": "there is no output 'presen'",
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_with_steps_is_said_at_its_line(tmp_path, said):
    found = problems_of(tmp_path, wrong_case(said))
    assert any(WRONG[said] in one.message and one.line == 13 for one in found), found


def wrong_case(said: str, **changed: str) -> str:
    text = say(BODY, said)
    for before, after in changed.items():
        text = text.replace(*after.split(" => ")) if before else text
    return "net:\n  about: a test\n" + "\n".join(f"  {line}" for line in text.splitlines())


OTHERWISE = {
    "outputs: [logits, present_key, present_value] => ": "steps needs the names of what forward returns",
    "present_value] => other]": "nothing feeds past_value: say which output it takes",
    "seq: 1..4 => seq: 2..4": "a step has one token, and seq begins at 2",
    "tokens: { => words: {": "which input takes the next token?",
    '"int64[batch, seq]" => "int64[batch, 5]"': "a step has one token: let the tokens vary",
    "  past_key: =>   x: 'float32[batch, seq]'\n  past_key:": "how does x go on?",
}


@pytest.mark.parametrize("change", OTHERWISE)
def test_what_a_case_lacks_for_steps_is_said(tmp_path, change):
    found = problems_of(tmp_path, wrong_case("steps: 2", change=change))
    assert any(OTHERWISE[change] in one.message for one in found), found


def test_a_past_without_room_is_refused(bench):
    record = bench.run(body("3").replace("past: 0..8", "past: 0..2"), python(), check="steps")
    assert verdict(record) == ("failed", "declare", "NoRoom", "case")
    assert "past is 0..2: let it reach further, or say fewer steps" in record.reason


@pytest.mark.parametrize("keys", ["k[:, :1]", "k.double()", "k.flatten(1)"])
def test_an_output_that_is_no_such_input_is_refused(bench, keys):
    record = bench.run(body("2"), python(KEYS=keys), check="steps")
    assert verdict(record) == ("failed", "declare", "WrongPast", "case")
    assert "present_key is fed to past_key, which takes float32[batch, 2, past, 8], and is" in record.reason
