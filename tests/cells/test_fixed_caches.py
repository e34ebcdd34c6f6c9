"""Decoders with a cache of a fixed size, of which an input says how much is filled: in each step one entry more."""

from functools import partial

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from conformance.case.files.case_file import load
from conformance.case.files.step_plan import step_plan
from conformance.case.plan.catalogue import plan
from tests.kit.cases import PASSED, load_case, verdict, write_case
from tests.kit.runtimes import wrong_runtime

GRAPH = """
<ir_version: 11, opset_import: ["" : 24]>
net (int64[batch, seq] input_ids, float[batch, 2, most, 8] past_key, float[batch, 2, most, 8] past_value,
     int64[batch] write_indices, int64[batch] nonpad_kv_seqlen)
 => (float[batch, seq, 12] logits, float[batch, 2, most, 8] present_key, float[batch, 2, most, 8] present_value)
<int64[4] apart = {0, 0, 2, 8}, int64[3] together = {0, 0, 16}>
{
  x = Gather(embed, input_ids)
  q = MatMul(x, of_queries)
  k = MatMul(x, of_keys)
  v = MatMul(x, of_values)
  q4 = Reshape(q, apart)
  k4 = Reshape(k, apart)
  v4 = Reshape(v, apart)
  queries = Transpose<perm=[0, 2, 1, 3]>(q4)
  keys = Transpose<perm=[0, 2, 1, 3]>(k4)
  values = Transpose<perm=[0, 2, 1, 3]>(v4)
  present_key = TensorScatter<axis=2>(past_key, keys, write_indices)
  present_value = TensorScatter<axis=2>(past_value, values, write_indices)
  FILLED
  a = Attention<is_causal=1>(queries, present_key, present_value, , , , filled)
  rows = Transpose<perm=[0, 2, 1, 3]>(a)
  flat = Reshape(rows, together)
  logits = MatMul(flat, head)
}
"""
SOUND = "filled = Identity(nonpad_kv_seqlen)"
LATER = """
  shape = Shape(input_ids)
  axis = Constant<value_int=1>()
  tokens = Gather<axis=0>(shape, axis)
  one = Equal(tokens, axis)
  off = Cast<to=7>(one)
  filled = OPERATOR(nonpad_kv_seqlen, off)
"""
"""Off by one in a step, and not in the first run of more tokens."""
BODY = """
onnx: net.onnx
inputs:
  write_indices: {type: "int64[batch]", values: {integers: {low: 0, high: 4}}}
dims: {batch: 1..2, seq: 1..4, most: 12..13}
specials: false
examples: {shapes: 0, values: 2, boundary: 3}
steps: 3
"""


def model(filled: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(GRAPH.replace("FILLED", filled))
    rng = np.random.default_rng(0)
    shapes = {"embed": (12, 16), "head": (16, 12)}
    for name in ("embed", "of_queries", "of_keys", "of_values", "head"):
        weight = rng.standard_normal(shapes.get(name, (16, 16))).astype(np.float32) / 2
        made.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return made


def stepped(bench, tmp_path, filled=SOUND, body=BODY):
    onnx.save(model(filled), tmp_path / "net.onnx")
    (case,) = load(write_case(tmp_path, body))
    (cell,) = (cell for cell in plan(case) if cell.check == "steps")
    return bench.run_cell(cell)


@pytest.mark.parametrize("inputs", ["as declared", "drafted"])
def test_a_cache_of_a_fixed_size_is_filled_step_by_step(bench, tmp_path, inputs):
    declared = BODY if inputs == "as declared" else "\n".join(
        line for line in BODY.splitlines() if "inputs" not in line and "write" not in line
    )  # fmt: skip
    record = stepped(bench, tmp_path, body=declared)
    assert verdict(record) == PASSED and record.examples >= 3, record.reason
    assert not any(one["name"] == "steps" for one in record.warnings)  # all at once was compared


@pytest.mark.parametrize("operator", ["Add", "Sub"])
def test_a_file_that_is_off_by_one_in_its_steps_differs_from_all_at_once(bench, tmp_path, operator):
    record = stepped(bench, tmp_path, LATER.replace("OPERATOR", operator))
    assert verdict(record) == ("failed", "declare", "StepsDiffer", "case"), record.reason


def off_by(entries, inputs, outputs):
    if inputs["input_ids"].shape[1] > 1:
        return outputs
    return ReferenceEvaluator(model(SOUND)).run(
        None, {**inputs, "nonpad_kv_seqlen": inputs["nonpad_kv_seqlen"] + entries}
    )


@pytest.mark.parametrize("entries", [1, -1])
def test_a_runtime_that_sees_one_entry_too_many_or_too_few_is_at_fault(bench, tmp_path, entries):
    with wrong_runtime(partial(off_by, entries)):
        record = stepped(bench, tmp_path)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime"), record.reason


def test_what_is_filled_ends_behind_what_is_written(tmp_path):
    onnx.save(model(SOUND), tmp_path / "net.onnx")
    found, wrong = step_plan(load_case(tmp_path, BODY).says)
    assert not wrong and found.written == "write_indices"
    assert found.next == {"write_indices": "count", "nonpad_kv_seqlen": "filled"}
    alone = BODY.replace("steps: 3", "steps: {count: 3, next: {write_indices: same}}")
    assert step_plan(load_case(tmp_path, alone).says)[0].written is None


DECODER = """
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self, vocab=12, wide=16):
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(vocab, wide), nn.Linear(wide, 3 * wide), nn.Linear(wide, vocab)

    def forward(self, input_ids, past_key, past_value, write_indices, nonpad_kv_seqlen):
        seq, most = input_ids.shape[1], past_key.shape[2]
        seen = nonpad_kv_seqlen
        if torch.onnx.is_in_onnx_export():
            PLANTED
        parts = self.qkv(self.embed(input_ids)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in parts)
        at = (write_indices[:, None] + torch.arange(seq))[:, None, :, None].expand(-1, 2, -1, 8)
        k, v = past_key.scatter(2, at, k), past_value.scatter(2, at, v)
        last = seen[:, None] - seq + torch.arange(seq)
        hidden = torch.arange(most) > last[:, None, :, None]
        scores = (q @ k.transpose(2, 3) * 8**-0.5).masked_fill(hidden, -1e4)
        return self.head((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), k, v
"""
OF_MODULE = """
module: beside.Decoder
inputs:
  input_ids: {type: "int64[batch, seq]", values: {integers: {low: 0, high: 11}}}
  past_key: float32[batch, 2, most, 8]
  past_value: float32[batch, 2, most, 8]
  write_indices: {type: "int64[batch]", values: {integers: {low: 0, high: 4}}}
  nonpad_kv_seqlen: {type: "int64[batch]", values: {integers: {low: seq, high: most}}}
outputs: [logits, present_key, present_value]
dims: {batch: 1..2, seq: 1..4, most: 12..13}
weights: awake
specials: false
examples: {shapes: 0, values: 2, boundary: 3}
steps: 3
"""


@pytest.mark.parametrize("planted", [
    "pass", "seen = seen + 1", pytest.param("seen = seen - 1", marks=pytest.mark.thorough),
    pytest.param("seen = seen * 0 + most", marks=pytest.mark.thorough),
])  # fmt: skip
def test_an_export_that_miscounts_what_is_filled_is_found(bench, planted):
    record = bench.run(OF_MODULE, DECODER.replace("PLANTED", planted), check="steps")
    assert verdict(record) == PASSED if planted == "pass" else verdict(record)[1:3] == ("compare", "WrongValue")
    assert record.fault != "runtime", record.reason
