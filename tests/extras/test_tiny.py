"""``conformance new --tiny``: a small network of a class by its name."""

from pathlib import Path
from typing import Any

import pytest

from conformance.case.files.case_file import load
from conformance.extras.draft.case_text import as_text
from conformance.extras.draft.drafting import Request
from conformance.extras.draft.tiny import HEADS, LAYERS, SIDE, WIDTH, WORDS, draft_tiny, reduced
from conformance.process.errors import Stopped
from tests.kit.runs import run_command

EVERY = {"words", "layers", "experts", "width", "side"}
OWN = """
import torch
class Stack(torch.nn.Module):
    def __init__(self, num_layers=24, hidden_size=768, num_heads=12, vocab_size=50000, pad_token_id=49999):
        super().__init__()
        assert hidden_size % num_heads == 0 and pad_token_id < vocab_size
        self.table = torch.nn.Embedding(vocab_size, hidden_size, pad_token_id)
        layers = [torch.nn.MultiheadAttention(hidden_size, num_heads, batch_first=True) for _ in range(num_layers)]
        self.layers = torch.nn.ModuleList(layers)
    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(x, x, x)[0]
        return x
class Wide(Stack):
    def __init__(self, num_layers=24, hidden_size=768, **more):
        super().__init__(num_layers, hidden_size, **more)
        assert hidden_size == 768, "only as wide as it was trained"
class Plain(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x)
class Config:
    def __init__(self, num_hidden_layers=12, **more):
        self.num_hidden_layers = num_hidden_layers
    def to_dict(self):
        return dict(vars(self))
class Configured(torch.nn.Module):
    config_class = Config
    def __init__(self, config):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(config.num_hidden_layers))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
def stack(**more):
    return Stack(**{"num_layers": 12, **more})
"""


def tiny(folder: Path, module: str, **given: Any) -> dict[str, Any]:
    """The arguments of a module that is made small; the case file loads."""
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    request, draft = draft_tiny(Request(folder, module, given, {}))
    (folder / "one.yaml").write_text(as_text("one", request, draft, {}, awake=False), encoding="utf-8")
    load(folder / "one.yaml")
    return dict(request.given)


SMALL = {
    "num_layers": LAYERS,
    "hidden_size": WIDTH,
    "num_heads": HEADS,
    "vocab_size": WORDS,
    "pad_token_id": WORDS - 1,
}


@pytest.mark.parametrize("module, given, made", [
    ("own.Stack", {}, SMALL),
    ("own.Stack", {"num_layers": 3}, SMALL | {"num_layers": 3}),  # what is said stays
    ("own.stack", {}, SMALL),  # a function that hands its arguments on
    ("own.Configured", {}, {"config": {"new": "own.Config", "with": {"num_hidden_layers": LAYERS}}}),
    # as far as the class allows
    ("own.Wide", {}, {"num_layers": LAYERS}),
])  # fmt: skip
def test_a_module_is_made_as_small_as_it_can_be(tmp_path, module, given, made):
    assert tiny(tmp_path, module, **given) == made


def test_what_has_no_numbers_that_are_known_stays_as_it_is_unless_it_is_large(tmp_path, monkeypatch):
    assert tiny(tmp_path, "own.Plain") == {}
    monkeypatch.setattr("conformance.extras.draft.tiny.MOST_WEIGHTS", 100)
    with pytest.raises(Stopped, match="weights as small as it could be made"):
        tiny(tmp_path, "own.Stack")


@pytest.mark.parametrize("numbers, small", [
    # widths keep their proportions, several heads theirs
    ({"hidden_size": 768, "intermediate_size": 3072}, {"hidden_size": 32, "intermediate_size": 128}),
    ({"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24]},
     {"embed_dim": 32, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8]}),
    # heads of keys are as many times fewer as they were
    ({"num_attention_heads": 32, "num_key_value_heads": 8}, {"num_attention_heads": 4, "num_key_value_heads": 1}),
    # tokens that a small vocabulary lacks are other ones, each its own
    ({"vocab_size": 32000, "pad_token_id": 0, "bos_token_id": 31998, "eos_token_id": 31999},
     {"vocab_size": WORDS, "bos_token_id": 98, "eos_token_id": 97}),
    # what counts the entries of a list goes with it
    ({"num_feat_extract_layers": 3, "conv_dim": [512, 512, 512]}, {"conv_dim": [32, 32, 32]}),
    ({"num_experts": 64, "num_experts_per_tok": 8}, {"num_experts": 4, "num_experts_per_tok": 2}),
    ({"image_size": (224, 224)}, {"image_size": [SIDE, SIDE]}),
    ({"text": {"num_layers": 12, "is_decoder": True}, "dropout": 0.1}, {"text": {"num_layers": 2}}),
    ({"num_layers": 1, "hidden_size": 8, "vocab_size": 10, "num_channels": 64, "patch_size": 32}, {}),
])  # fmt: skip
def test_numbers_are_known_by_their_names(numbers, small):
    assert reduced(numbers, EVERY) == small


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["transformers.BertModel", "timm.models.vit_base_patch16_224"])
def test_networks_of_libraries_are_green_by_their_name(tmp_path, module):
    made = run_command(tmp_path, "new", "one", "--from", module, "--tiny")
    assert made.code == 0 and "made small, with random weights" in (tmp_path / "cases/one.yaml").read_text()


@pytest.mark.parametrize("options, said", [
    (["--tiny"], "are about the module of --from"),
    (["--from", "own.Stack", "--tiny", "--config", "c.json"], "leave out --config"),
])  # fmt: skip
def test_the_command_says_what_does_not_go_with_it(tmp_path, options, said):
    refused = run_command(tmp_path, "new", "one", *options)
    assert refused.code == 2 and said in refused.text
