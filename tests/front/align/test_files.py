"""ONNX files operator by operator: what a file means beside a runtime, or beside another file that was made of it."""

import contextlib
import math

import numpy as np
import onnx
import pytest

from conformance.front.cli import main
from conformance.front.commands.align.answer import align
from conformance.front.commands.align.question import AlignQuestion
from tests.diagnose.test_second_file import FUSED, MORE, NET, RENAMED, WA, WB, WRONG, saved
from tests.front.align.support import said
from tests.kit.models import model_of
from tests.kit.runtimes import replaced_runtime


def aligned(folder, *names, **asked):
    files = [folder / f"{name}.onnx" for name in names]
    return align(AlignQuestion("", [], folder / "store" / "models", files=files, dims=["n=2..5"], **asked))


def first(answer):
    """Return the node that is marked as the first wrong one."""
    (marked,) = (row.node for row in answer.rows if row.first)
    return marked


@pytest.mark.parametrize("what", ["a weight", "renamed, an attribute", "rewritten, a constant"])
def test_the_node_of_a_second_file_is_named_with_what_is_another(tmp_path, what):
    text, constants, operator, why = WRONG[what]
    saved(tmp_path, "net", NET), saved(tmp_path, "second", text, **constants)
    answer = aligned(tmp_path, "net", "second")
    assert answer.parts and first(answer).startswith(f"{operator} ") and why in said(answer)
    assert "net and second.onnx beside it" in answer.heading and "the first that is wrong" in answer.heading


@pytest.mark.parametrize("text, constants", [(RENAMED, {}), (FUSED, MORE)])
def test_a_second_file_of_the_same_values_parts_nowhere(tmp_path, text, constants):
    """Of plain values, as exp(x) / sum(exp(x)) is no softmax of large ones."""
    saved(tmp_path, "net", NET), saved(tmp_path, "second", text, **constants)
    answer = aligned(tmp_path, "net", "second", values="plain")
    assert not answer.parts and said(answer).startswith("nothing parts in this example")
    assert any(row.operator.operator == "MatMul c" and row.badness < 1 for row in answer.rows)
    left = "left out, as nothing in net.onnx stands for them"
    assert (left in said(answer)) == any(row.badness == -math.inf for row in answer.rows) == (text == FUSED)


def merging(original):
    """A runtime that merges a LeakyRelu that nobody looks at into the MatMul behind it, and is wrong then."""

    @contextlib.contextmanager
    def opened(model, libraries, **options):
        loaded = onnx.load(model)
        hidden = {"LeakyRelu", "MatMul"} <= {node.op_type for node in loaded.graph.node[1:]}
        shown = {output.name for output in loaded.graph.output} & {"b"}
        with original(model, libraries, **options) as session:
            run = session.run
            if hidden and not shown:
                session.run = lambda inputs: [array * np.float32(1.5) for array in run(inputs)]
            yield session

    return opened


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_what_a_runtime_merges_is_found_by_cuts(tmp_path, runtime):
    """A runtime that merges nothing and is right as soon as the tensors inside are shown."""
    saved(tmp_path, "net", NET.replace("Softmax <axis = -1>", "Tanh"))
    assert not aligned(tmp_path, "net", runtime=runtime).parts
    with replaced_runtime(merging, runtime):
        answer = aligned(tmp_path, "net", runtime=runtime)
    assert answer.parts and first(answer) == "MatMul c" and "its inputs agree; at [" in said(answer)
    assert [row.node for row in answer.rows if row.parts] == ["MatMul c", "Tanh y"]


HALF = """net (float[n, 8] x) => (float[n, 4] y) {
    h = Cast <to = 10> (x)
    a = MatMul (h, wa)
    b = LeakyRelu <alpha = 0.1> (a)
    c = MatMul (b, wb)
    s = Softmax <axis = -1> (c)
    y = Cast <to = 1> (s)
}"""
OTHERS_HALF = HALF.replace(" a =", " t1 =").replace("(a)", "(t1)").replace(" c =", " t3 =").replace("(c)", "(t3)")


@pytest.mark.parametrize("text", [HALF, OTHERS_HALF])
@pytest.mark.parametrize("turned", [False, True])
def test_the_layers_of_a_converted_file_are_sorted_by_what_each_loses_itself(tmp_path, text, turned):
    saved(tmp_path, "net", NET)
    wa, wb = (WA.T if turned else WA).astype(np.float16), WB.astype(np.float16)
    onnx.save(model_of(text, wa=wa, wb=wb), tmp_path / "half.onnx")
    answer = aligned(tmp_path, "net", "half")
    own = [-row.badness for row in answer.rows]
    assert own == sorted(own) and "fp16" in answer.heading and answer.parts is turned
    assert {row.operator.operator for row in answer.rows} == {"MatMul a", "LeakyRelu b", "MatMul c", "Softmax y"}
    if turned:
        assert first(answer) in ("MatMul a", "MatMul t1") and own[0] < 20 < own[1]
        assert "its weight wa is transposed" in said(answer)
    else:
        assert own[0] > 50 and "the outputs have the SQNR that is due" in said(answer)


@pytest.mark.parametrize("arguments, text", [
    (["a.onnx", "b.onnx", "c.onnx"], "name one case, or one ONNX file, or one and another that was made of it"),
    (["a", "b"], "name one case"), (["a", "--dim", "n=2"], "--dim and --input are for ONNX files"),
    (["none.onnx"], "none.onnx cannot be read"), (["net.onnx", "text.onnx"], "text.onnx"),
    (["net.onnx", "--dim", "m=2"], "m"),
])  # fmt: skip
def test_what_the_user_has_to_correct(tmp_path, monkeypatch, capsys, arguments, text):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, "net", NET)
    (tmp_path / "text.onnx").write_text("no model")
    assert main(["align", *arguments]) == 2
    assert text in capsys.readouterr().err
