"""Decoders whose rows are padded on the left: positions count what the mask shows, which hides in each step."""

import numpy as np
import pytest

from conformance.case.draw.draw import Draw, Maker
from tests.kit.cases import PASSED, load_case, problems_of, say, verdict

DECODER = """
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self, vocab=50, wide=16, most=32):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocab, wide), nn.Embedding(most, wide)
        self.qkv, self.head = nn.Linear(wide, 3 * wide), nn.Linear(wide, vocab)

    def forward(self, input_ids, attention_mask, position_ids, past_key, past_value):
        past, seq = past_key.shape[2], input_ids.shape[1]
        if torch.onnx.is_in_onnx_export():
            PLANTED
        x = self.embed(input_ids) + self.place(position_ids)
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
        later = torch.arange(past + seq) > torch.arange(seq)[:, None] + past
        hidden = later | (attention_mask == 0)[:, None, None]
        scores = (q @ k.transpose(2, 3) * 8**-0.5).masked_fill(hidden, -1e4)
        y = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.head(y), k, v
"""
BODY = """
module: beside.Decoder
inputs:
  input_ids: {type: "int64[batch, seq]", values: {integers: {low: 0, high: 49}}}
  attention_mask: {type: "int64[batch, past + seq]", values: {left_padding: [0, 1]}}
  position_ids: {type: "int64[batch, seq]", values: {positions_of: attention_mask}}
  past_key: float32[batch, 2, past, 8]
  past_value: float32[batch, 2, past, 8]
outputs: [logits, present_key, present_value]
dims: {batch: 1..2, seq: 1..4, past: 0..8}
weights: awake
specials: false
examples: {shapes: 0, values: 2, boundary: 3}
steps: 3
"""
PLANTED = {
    "positions by the index": "position_ids = (torch.arange(seq) + past)[None] + position_ids * 0",
    "no mask": "attention_mask = attention_mask * 0 + 1",
    "a mask from its other end": "attention_mask = attention_mask.flip(-1)",
    "a mask of the new tokens alone": "attention_mask = torch.cat("
                                      "[attention_mask[:, :past] * 0 + 1, attention_mask[:, past:]], 1)",
}  # fmt: skip
SLOW = ("no mask", "a mask from its other end", "a mask of the new tokens alone")


@pytest.mark.parametrize("check", ["accuracy", "steps"])
def test_a_decoder_that_heeds_the_mask_passes(bench, check):
    record = bench.run(BODY, DECODER.replace("PLANTED", "pass"), check=check)
    assert verdict(record) == PASSED, record.reason


@pytest.mark.parametrize("planted", [
    pytest.param(change, id=name, marks=[pytest.mark.thorough] * (name in SLOW)) for name, change in PLANTED.items()
])  # fmt: skip
def test_a_file_that_takes_padding_for_tokens_is_found(bench, planted):
    record = bench.run(BODY, DECODER.replace("PLANTED", planted), check="steps")
    assert verdict(record)[:3] == ("failed", "compare", "WrongValue") and record.fault != "runtime", record.reason


def test_what_shows_is_last_and_positions_count_it(tmp_path):
    case = load_case(tmp_path, BODY)
    seen = set()
    for regime, seed in (("plain", 1), ("plain", 2), ("zero", 1), ("ends", 1)):
        made = Maker(case, lambda name: pytest.fail(name))(Draw({"batch": 2, "seq": 3, "past": 4}, regime, seed))
        mask, positions = made["attention_mask"], made["position_ids"]
        assert (np.diff(mask) >= 0).all() and mask[:, -1].all() and mask.shape == (2, 7)
        assert positions.dtype == np.int64 and positions.shape == (2, 3)
        assert (positions[:, -1] == mask.sum(1) - 1).all() and not positions[mask[:, 4:] == 0].any()
        seen |= {*mask.sum(1).tolist()}
    assert {1, 7} < seen


@pytest.mark.parametrize("of, told", [
    ("attention_mak", "there is no padding mask 'attention_mak'; did you mean"),
    ("input_ids", "there is no padding mask 'input_ids'; say values: {left_p"),
])  # fmt: skip
def test_positions_of_something_else_are_refused(tmp_path, of, told):
    body = say(BODY).replace("positions_of: attention_mask", f"positions_of: {of}")
    text = "net:\n  about: a test\n" + "\n".join(f"  {line}" for line in body.splitlines())
    (found,) = problems_of(tmp_path, text)
    assert told in found.message and found.line == 7, found
