"""``conformance new --from``: a case of a module that is there, whose inputs are found by trying."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance.case.draw.value_regimes import make
from conformance.case.files.case_file import load
from conformance.extras.draft.case_text import as_text
from conformance.extras.draft.drafting import Draft, Request, configuration, draft_module
from conformance.extras.draft.guessed_inputs import guesses_in
from conformance.extras.draft.observed_modules import Script, observe
from conformance.extras.draft.recorded_inputs import call_of, types_of
from conformance.extras.draft.submodules import Part, parts
from conformance.extras.draft.whole_numbers import range_of
from conformance.process.errors import Stopped, UserError
from tests.kit.runs import run_command

BESIDE = """
import dataclasses
import torch
@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    loss: None = None
class Object(torch.nn.Module):
    def forward(self, x):
        return Answer(x.sin())
class Blocks(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], -1, 16).sum(1)
class Picky(torch.nn.Module):
    def forward(self, x):
        raise ValueError("only on Sundays")
class Named(torch.nn.Module):
    main_input_name = "input_ids"
    def __init__(self, config=None):
        super().__init__()
        self.table = torch.nn.Embedding(11, 6)
    def forward(self, other=None, input_ids=None, attention_mask=None):
        assert other is None
        return self.table(input_ids) * attention_mask[..., None]
class Config:
    pass
Named.config_class = Config
def build():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 30 * 30, 2))
"""


def draft(folder: Path, module: str, inputs: dict[str, str] | None = None, **given: Any) -> tuple[Draft, str]:
    """What is found of a module, and the case file, which loads."""
    (folder / "own.py").write_text(BESIDE, encoding="utf-8")
    request = Request(folder, module, given, inputs or {})
    found = draft_module(request)
    text = as_text("one", request, found, {}, awake=False)
    (folder / "one.yaml").write_text(text, encoding="utf-8")
    load(folder / "one.yaml")
    return found, text


LINEAR = {"in_features": 4, "out_features": 3}
CONV = {"in_channels": 4, "out_channels": 3, "kernel_size": 3}


@pytest.mark.parametrize("module, given, types", [
    ("Linear", LINEAR, ["float32[batch, 4]"]), ("Conv2d", CONV, ["float32[batch, 4, h, w]"]),
    ("LSTM", {"input_size": 6, "hidden_size": 5}, ["float32[batch, seq, 6]"]),
    ("Embedding", {"num_embeddings": 9, "embedding_dim": 5}, ["int64[batch, seq]"]),
    ("MultiheadAttention", {"embed_dim": 8, "num_heads": 2}, ["float32[batch, seq, 8]"] * 3),
    ("Bilinear", {"in1_features": 4, "in2_features": 5, "out_features": 2},
     ["float32[batch, 4]", "float32[batch, 5]"]),
])  # fmt: skip
def test_the_inputs_of_a_module_are_found(tmp_path, module, given, types):
    found, _ = draft(tmp_path, f"torch.nn.{module}", **given)
    assert [guess.type for guess in guesses_in(found.inputs)] == types


def test_whole_numbers_stay_within_the_table(tmp_path):
    _, text = draft(tmp_path, "torch.nn.Embedding", num_embeddings=9, embedding_dim=5)
    assert "high: 8" in text and "# indices into a table of 9 rows" in text


NUMBERS = """
import torch
from torch.nn.functional import one_hot
class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.wide = torch.nn.Embedding(50, 4), torch.nn.Embedding(9000, 4)
    def forward(self, x, ids):
        return BODY
"""
NODES = "int64[e]"


@pytest.mark.parametrize("takes, found", [
    (lambda it, k, n: it < 10, (0, 9)), (lambda it, k, n: it < 9000, (0, 8999)), (lambda it, k, n: True, (-64, 64)),
    (lambda it, k, n: it < n, (0, "n - 1")), (lambda it, k, n: it < 2 * n, (0, "2*n - 1")),
    (lambda it, k, n: it < k * n, (0, "k*n - 1")), (lambda it, k, n: 1 <= it <= n, (1, "n")),
    (lambda it, k, n: it != 0, (1, 64)),
])  # fmt: skip
def test_a_range_ends_where_a_number_is_refused_and_moves_with_the_dims(takes, found):
    limits = -(2**63), 2**63 - 1
    assert range_of(lambda it, at: takes(it, **at), {"k": 4, "n": 6}, 0, limits, [50, 9000]) == found


@pytest.mark.parametrize("body, kind, low, high", [
    ("self.rows(ids) + (ids % 7)[..., None]", NODES, 0, 49), ("self.wide(ids)", NODES, 0, 8999),
    ("torch.zeros_like(x).index_add(0, ids[1], x[ids[0]])", "int64[2, e]", 0, "n - 1"),
    ("x.sum() / ids", NODES, 1, 64), ("x.sum() * ids.clamp(max=300)", NODES, -1200, 1200),
    ("x.sum() * ids", "int8[e]", -128, 127),
])  # fmt: skip
def test_whole_numbers_are_those_that_the_module_takes(tmp_path, body, kind, low, high):
    (tmp_path / "whole.py").write_text(NUMBERS.replace("BODY", body), encoding="utf-8")
    found, _ = draft(tmp_path, "whole.Own", {"x": "float32[n, k]", "ids": kind})
    values = next(guess for guess in guesses_in(found.inputs) if guess.type == kind).values
    assert values == {"integers": {"low": low, "high": high}}


def test_values_may_be_said_and_are_asked_for_where_no_range_is_taken(tmp_path):
    values = "{type: int64[batch, 2], values: {choice: [3, 5]}}"
    found, text = draft(tmp_path, "torch.nn.Embedding", {"input": values}, num_embeddings=9, embedding_dim=5)
    assert "choice: [3, 5]" in text and list(found.dims) == ["batch"]
    body = "x[: ids.max() // 2] * torch.linalg.cholesky(torch.diff(ids.double()).diag())"
    (tmp_path / "whole.py").write_text(NUMBERS.replace("BODY", body), encoding="utf-8")
    with pytest.raises(Stopped, match="say"):
        draft(tmp_path, "whole.Own", {"x": "float32[n, k]", "ids": NODES})
    with pytest.raises(Stopped, match="low 4 is above high 3"):
        draft(tmp_path, "torch.nn.ReLU", {"input": "{type: int64[n], values: {integers: {low: 4, high: 3}}}"})


def test_only_dims_that_vary_are_dims(tmp_path):
    found, text = draft(tmp_path, "own.build")
    assert list(found.dims) == ["batch"] and found.held == {"h": 32, "w": 32}
    assert '"float32[batch, 3, 32, 32]"' in text


def test_a_size_that_has_to_be_a_multiple_stays_at_one_size(tmp_path):
    found, _ = draft(tmp_path, "own.Blocks", {"x": "float32[batch, k, 16]"})
    assert found.dims == {"batch": "1..6", "k": "1..7"}
    found, text = draft(tmp_path, "own.Blocks", {"x": "float32[batch, h]"})
    assert found.held == {"h": 32} and "float32[batch, 32]" in text


def test_what_is_passed_by_name_and_what_an_object_holds_is_reported(tmp_path):
    found, text = draft(tmp_path, "own.Named")
    assert found.keywords == {"input_ids", "attention_mask"}
    assert "as: input_ids" in text and "as: attention_mask" in text
    found, text = draft(tmp_path, "own.Object")
    assert found.returns == ("logits",) and "returns: [logits]" in text


MASKED = """
import torch
class Masked(torch.nn.Module):
    def forward(self, x, mask):
        hidden = HIDDEN
        return torch.softmax(x.masked_fill(hidden, -torch.inf), -1)
class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(6, 3).half()
    def forward(self, x):
        return self.line(x)
"""


@pytest.mark.parametrize("kind, hidden, padding", [
    ("bool", "mask", [1, 0]), ("bool", "~mask", [0, 1]), ("int64", "mask == 0", [0, 1]),
    ("int64", "mask > 0", [1, 0]),
])  # fmt: skip
def test_a_mask_never_hides_a_whole_row_whatever_it_hides_by(tmp_path, kind, hidden, padding):
    (tmp_path / "masked.py").write_text(MASKED.replace("HIDDEN", hidden), encoding="utf-8")
    found, _ = draft(tmp_path, "masked.Masked", {"x": "float32[n, k]", "mask": f"{kind}[n, k]"})
    (mask,) = (guess for guess in guesses_in(found.inputs) if guess.values)
    assert mask.values == {"padding": padding}
    (case,) = load(tmp_path / "one.yaml")
    drawn = [
        make(case.says.inputs["mask"], {"n": 6, "k": 4}, regime, np.random.default_rng(0)) == padding[1]
        for regime in ("plain", "zero", "ends")
    ]
    assert all(rows[:, 0].all() and (rows[:, :-1] >= rows[:, 1:]).all() for rows in drawn)
    assert len({*drawn[0].sum(1)}) > 1 and (drawn[1].sum(1) == 1).all() and drawn[2].all()


def test_half_modules_get_half_inputs_and_dims_may_be_said(tmp_path):
    (tmp_path / "masked.py").write_text(MASKED, encoding="utf-8")
    found, _ = draft(tmp_path, "masked.Half")
    assert [guess.type for guess in guesses_in(found.inputs)] == ["float16[batch, 6]"]
    request = Request(tmp_path, "own.Blocks", {}, {"x": "float32[batch, h]"}, dims={"h": "16..64 step 16"})
    (tmp_path / "own.py").write_text(BESIDE, encoding="utf-8")
    assert draft_module(request).dims == {"batch": "1..6", "h": "16..64 step 16"}
    for dims, said in (({"k": "1..4"}, "no input has a dim of that name"), ({"h": "many"}, "is no range of sizes")):
        with pytest.raises(Stopped, match=said):
            draft_module(Request(tmp_path, "own.Blocks", {}, {"x": "float32[batch, h]"}, dims=dims))


@pytest.mark.thorough
def test_the_lstm_of_the_readme_is_green_and_says_what_its_runtime_does_to_nan(tmp_path):
    outcome = run_command(tmp_path, "new", "lstm", "--from", "torch.nn.LSTM", "--with", "input_size=6", "--with",
                          "hidden_size=5")  # fmt: skip
    assert outcome.code == 0 and "cases/lstm.yaml declares under fails: onnxruntime is at fault" in outcome.text
    (case,) = load(tmp_path / "cases" / "lstm.yaml")
    assert {entry.error for entry in case.says.fails} == {"WrongNaN"}


def test_failures_that_are_declared_stand_in_the_file(tmp_path):
    (tmp_path / "own.py").write_text(BESIDE, encoding="utf-8")
    request = Request(tmp_path, "own.Object", {}, {"x": "float32[n]"})
    when = {"check": "specials", "exporter": "dynamo", "runtime": "onnxruntime"}
    fails = [{"when": when, "stage": "compare", "error": "WrongNaN", "because": "it is: so"}]
    text = as_text("one", request, draft_module(request), {}, awake=False, fails=fails)
    (tmp_path / "one.yaml").write_text(text, encoding="utf-8")
    (case,) = load(tmp_path / "one.yaml")
    assert case.says.fails[0].because == "it is: so"


RETURNS = """
import dataclasses
import torch
@dataclasses.dataclass
class Extra:
    n: torch.Tensor
    size: int
    same: int = 3
    word: str = "a"
class Cache:
    def __init__(self, *layers):
        self.layers, self.seen, self._own = [*layers], layers[0].shape[0], layers[0]
class Layer:
    __slots__ = ("keys",)
    def __init__(self, keys):
        self.keys = keys
@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    extra: Extra
    cache: Cache
    odd: object = None
class Own(torch.nn.Module):
    def forward(self, x):
        return RESULT
"""
WHOLE = "Answer(x.sin(), Extra(x.cos(), x.shape[0]), Cache(x * 2, x * 3), {'b c': x, 'z': torch.fft.fft(x)})"


@pytest.mark.parametrize("result, paths, left_out", [
    ("(x.sin(), [x.cos()], {'a': x})", (), {}),
    (WHOLE, ("logits", "extra.n", "extra.size", "cache.layers.0", "cache.layers.1", "cache.seen"),
     {"extra.same": "the same at all sizes", "extra.word": "a str", "odd.b c": "a path cannot name it",
      "odd.z": "complex numbers"}),
    ("(x, Layer(x * 2))", ("0", "1.keys"), {}), ("(x.sin(), x.to_sparse())", ("0",), {"1": "to_dense()"}),
    ("(x.sin(), x.shape)", ("0", "1.0", "1.1"), {}),
])  # fmt: skip
def test_all_that_can_be_compared_of_what_is_returned_is_and_the_rest_is_named(tmp_path, result, paths, left_out):
    (tmp_path / "returns.py").write_text(RETURNS.replace("RESULT", result), encoding="utf-8")
    found, text = draft(tmp_path, "returns.Own", {"x": "float32[n, k]"})
    assert found.returns == paths and found.left_out.keys() == left_out.keys()
    assert all(said in found.left_out[path] and f": {path}: " in text for path, said in left_out.items())
    (tmp_path / "returns.py").unlink()


def test_what_holds_nothing_that_can_be_compared_is_refused_with_the_reason(tmp_path):
    (tmp_path / "bare.py").write_text(RETURNS.replace("RESULT", "torch.fft.fft(x)"), encoding="utf-8")
    with pytest.raises(Stopped, match="complex numbers"):
        draft(tmp_path, "bare.Own", {"x": "float32[n, k]"})


def test_the_class_of_a_configuration_is_the_modules(tmp_path):
    (tmp_path / "own.py").write_text(BESIDE, encoding="utf-8")
    assert configuration(tmp_path, "own.Named") == "own.Config"
    with pytest.raises(Stopped, match="does not say of which class"):
        configuration(tmp_path, "own.Object")


def test_the_command_writes_a_case_and_runs_it(tmp_path):
    given = ["new", "line", "--from", "torch.nn.Linear", "--with", "in_features=4", "--with", "out_features=3"]
    outcome = run_command(tmp_path, *given)
    assert outcome.code == 0 and "passed  accuracy[line-dynamo-op20-onnxruntime-fp32]" in outcome.text
    assert "wrote cases/line.yaml; run it with" in outcome.text
    (case,) = load(tmp_path / "cases" / "line.yaml")
    assert case.says.given == LINEAR
    again = run_command(tmp_path, *given)
    assert again.code == 2 and "is there already" in again.text


@pytest.mark.parametrize("arguments, said", [
    (["--with", "a=1"], "are about the module of --from"),
    (["--observe", "script.py"], "there is no script script.py"),
    (["--from", "torch.nn.ReLU", "--submodules", "1"], "has no submodules of which a case can be written"),
    (["--from", "torch.nn.ReLU", "--with", "a"], "write NAME=VALUE"),
    (["--from", "torch.nn.ReLU", "--input", "x=float32[batch]"], "takes no input 'x'"),
    (["--from", "torch.nn.ReLU", "--input", "input=float32[batch"], "input: "),
    (["--from", "torch.nn.Linear", "--with", "in_feature=4"], "cannot be built: TypeError"),
    (["--from", "./nowhere.py:Net"], "there is no file nowhere.py"),
    (["--from", "./own.py"], "name a class or a function in the file, as ./audio.py:Net"),
    (["--from", "./own.py:Picky", "--folder", "cases"], "the case has to lie beside it"),
    (["--from", "./own.py:Nothing"], "has no 'Nothing'"),
    (["--from", "./own.py:Picky"], "no inputs that were tried (ValueError: only on Sundays); say them, as in --inp"),
])  # fmt: skip
def test_the_command_names_what_it_cannot_use(tmp_path, arguments, said):
    (tmp_path / "own.py").write_text(BESIDE, encoding="utf-8")
    outcome = run_command(tmp_path, "new", "line", *arguments)
    assert outcome.code == 2 and said in outcome.text
    assert not list(tmp_path.rglob("*.yaml"))


NETWORK = """
import torch
class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = torch.nn.Linear(size, size)
    def forward(self, x, mask=None, *, pairs=(), scale=1.0):
        y = self.inner(x) * scale + sum(pairs)
        return y if mask is None else y.masked_fill(~mask[..., None], 0.0)
class Never(torch.nn.Module):
    def forward(self, x):
        return x
class Odd(torch.nn.Module):
    def forward(self, x, what):
        return x * 2
class Network(torch.nn.Module):
    def __init__(self, size=6, depth=2):
        super().__init__()
        self.table = torch.nn.Embedding(11, size)
        self.blocks = torch.nn.ModuleList(Block(size) for _ in range(depth))
        self.never, self.odd = Never(), Odd()
    def forward(self, ids):
        x = self.table(ids)
        mask = ids > 2
        for block in self.blocks:
            x = block(x, mask, pairs=(x, x.sum(1, keepdim=True)), scale=0.5)
        return self.odd(x, object()).flatten(1, 2).mean(1)
"""


def found_parts(folder: Path, levels: int) -> dict[str, Part]:
    (folder / "network.py").write_text(NETWORK, encoding="utf-8")
    request = Request(folder, "network.Network", {}, {"ids": "int64[batch, seq]"})
    return {one.path: one for one in parts(request, levels)}


def test_one_submodule_of_each_class_is_drafted_from_the_calls_that_it_gets(tmp_path):
    """A list of modules is no level, and what is not called no part."""
    found = found_parts(tmp_path, 1)
    assert list(found) == ["table", "blocks.0", "odd"]
    assert "blocks.0.inner" in found_parts(tmp_path, 2)
    assert "what is a object, which a case says by hand" in str(found["odd"].draft)
    block = found["blocks.0"]
    assert (block.kind, block.count, block.name("net", set())) == ("Block", 2, "net_block")
    assert block.name("net", {"net_block"}) == "net_block_2" and isinstance(block.draft, Draft)
    types = [guess.type for guess in guesses_in(block.draft.inputs)]
    floats = "float32[batch, seq, 6]"
    assert types == [floats, "bool[batch, seq]", floats, "float32[batch, 1, 6]"]
    assert block.draft.keywords == {"pairs", "scale"} and block.draft.dims.keys() == {"batch", "seq"}
    request = Request(tmp_path, "network.Network", {}, {}, "blocks.0")
    (tmp_path / "one.yaml").write_text(as_text("one", request, block.draft, {}, awake=False), encoding="utf-8")
    (case,) = load(tmp_path / "one.yaml")
    assert list(case.says.inputs) == ["x", "mask", "pairs.0", "pairs.1"]


SCRIPT = """
import torch
from network import Network
def build(depth):
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(depth)))
if __name__ == "__main__":
    line = torch.nn.Linear(4, 3)
    for rows in (2, 5):
        line(torch.randn(rows, 4).abs())
    Network(size=8)(torch.randint(0, 11, (2, 5)))
    build(2)(torch.randn(2, 4))
    changed = torch.nn.Linear(4, 3)
    changed.weight = torch.nn.Parameter(torch.randn(5, 4))
    changed.bias = None
    changed(torch.randn(2, 4))
    raise ValueError("half way")
"""


@pytest.mark.parametrize("name, numbers, high", [
    ("attention_mask", [1, 1], None), ("ids", [1, 7], 10), ("ids", [1, 40], 40),
])  # fmt: skip
def test_whole_numbers_are_those_of_a_mask_of_a_table_or_as_far_as_seen(name, numbers, high):
    class Own(torch.nn.Module):
        def forward(self, attention_mask: Any = None, ids: Any = None) -> None:
            pass

    call = call_of(Own(), (), {name: torch.tensor(numbers)})
    inputs, sizes = types_of([call], rows=[11])
    (guess,) = guesses_in(inputs)
    assert guess.values == (
        {"padding": [0, 1]}
        if high is None
        else {"integers": {"low": min(numbers) if high == 40 else 0, "high": high}}
    )
    assert call.keywords == {name} and sizes == {"batch": 2}


def watched(folder: Path, text: str) -> Script:
    (folder / "network.py").write_text(NETWORK, encoding="utf-8")
    (folder / "script.py").write_text(text, encoding="utf-8")
    return observe(folder / "script.py", folder, "mine")


def test_what_a_script_calls_is_drafted_with_what_it_was_made_with(tmp_path):
    seen = watched(tmp_path, SCRIPT)
    line, network, _, changed = seen.modules
    assert line.request.module == "torch.nn.Linear"
    assert line.request.given == {"in_features": 4, "out_features": 3} and isinstance(line.draft, Draft)
    assert next(guesses_in(line.draft.inputs)).values is not None, "no negative number was seen"
    assert line.draft.dims.keys() == {"batch"}
    assert (network.request.module, network.request.given) == ("network.Network", {"size": 8})
    assert "other weights" in str(changed.draft)
    assert "stopped: ValueError: half way" in seen.stopped


OPTIONAL = """
import torch
class Masked(torch.nn.Module):
    def forward(self, x, mask=None, scale=1.0):
        return torch.softmax(x if mask is None else x + mask{wrong}, -1) * scale
if __name__ == "__main__":
    net = Masked()
    net(torch.rand(2, 4))
    net(torch.rand(3, 4), torch.rand(3, 4) - 1)
    net(torch.rand(5, 4))
"""


@pytest.mark.parametrize("wrong, names", [("", ["x", "mask"]), (" if (mask < 0).all() else 1 / 0", ["x"])])
def test_the_call_that_gives_most_says_which_inputs_there_are_unless_it_cannot_be_drawn(tmp_path, wrong, names):
    (one,) = watched(tmp_path, OPTIONAL.format(wrong=wrong)).modules
    assert isinstance(one.draft, Draft), one.draft
    assert [*one.draft.inputs] == names and one.draft.dims.keys() == {"batch", "seq"}


@pytest.mark.parametrize("text, said", [
    ("import torch\ntorch.nn.ReLU()", "script.py called no module"),
    ("import nowhere", "script.py stopped: ModuleNotFoundError"),
])  # fmt: skip
def test_a_script_that_calls_nothing_is_reported(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        watched(tmp_path, text)


def test_a_class_of_a_script_that_would_run_again_is_reported(tmp_path):
    own = "class Own(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    (one,) = watched(tmp_path, f"import torch\n\n{own}\nOwn()(torch.ones(2))\n").modules
    assert "put what it runs below if __name__" in str(one.draft)


@pytest.mark.thorough
def test_the_command_observes_and_leaves_out_an_exporter_that_cannot(tmp_path):
    """All cases go into one file. TorchScript has no asinh at all, where dynamo's translation has it."""
    own = "import torch\nclass Own(torch.nn.Module):\n    def forward(self, x):\n        return x.asinh()\n"
    calls = "import torch, own\ntorch.nn.Tanh()(torch.randn(3, 5))\nown.Own()(torch.randn(2, 4))\n"
    (tmp_path / "cases").mkdir()
    for folder in (tmp_path, tmp_path / "cases"):
        (folder / "own.py").write_text(own, encoding="utf-8")
    (tmp_path / "script.py").write_text(calls, encoding="utf-8")
    outcome = run_command(tmp_path, "new", "mine", "--observe", "script.py")
    assert outcome.code == 0 and "passed  accuracy[mine_2-dynamo-op20-onnxruntime-fp32]" in outcome.text
    assert [case.name for case in load(tmp_path / "cases" / "mine.yaml")] == ["mine_1", "mine_2"]
    text = (tmp_path / "cases" / "mine.yaml").read_text(encoding="utf-8")
    assert text.count("# torchscript: [17] does not export it: UnsupportedOperatorError") == 1
    assert text.count("    dynamo: [20]") == 2
