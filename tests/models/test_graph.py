"""What is read from a model file, and held against what a case says."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from conformance.case.files.must_hold import GraphAssertion
from conformance.models.exporters import graph
from conformance.process.disk.onnx_models import Serialized
from conformance.runtimes.onnxgraph import reads
from tests.kit.cases import load_case
from tests.kit.models import model_of

pytestmark = pytest.mark.smoke
BODY = 'forward: torch.sin(x)\ninputs: {x: "float32[n, 3]"}\ndims: {n: 1..4}\n'


def model(operator="Sin", dims=("n", 3), name="x", dtype=TensorProto.FLOAT, weight=1.0, doc="", inner="h", domain=""):
    nodes = [
        helper.make_node(operator, [name], [inner], domain=domain, doc_string=doc),
        helper.make_node("Mul", [inner, "w"], ["y"]),
    ]
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(name, dtype, dims)],
        [helper.make_tensor_value_info("y", dtype, dims)],
        [numpy_helper.from_array(np.array(weight, "float32"), "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(made, opset_imports=opsets)


def facts(**changes):
    made = model(**changes)
    return graph.read(made, Serialized(made.SerializeToString()))


def test_what_a_graph_is_known_by_is_alike_on_every_host_and_in_whatever_order_weights_are_listed():
    same = facts(weight=[1.0, 2.0, 3.0]).canonical
    assert facts(weight=[1.0, 2.0, 3.0000002], inner="other", doc="of another path").canonical == same
    assert facts(weight=[1.0, 2.0]).canonical != same
    assert facts(weight=1e-5).canonical != facts(weight=1e-6).canonical
    listed = model_of(
        "g (float[n] x) => (float[n] y) { z = Mul (x, a) y = Add (z, b) }", a=np.int64(1), b=np.int64(2)
    )
    other = model_of("g (float[n] x) => (float[n] y) { z = Mul (x, a) y = Add (z, b) }", b=np.int64(2), a=np.int64(1))
    assert graph.structure(listed) == graph.structure(other)
    swapped = model_of(
        "g (float[n] x) => (float[n] y) { z = Mul (x, b) y = Add (z, a) }", a=np.int64(1), b=np.int64(2)
    )
    assert graph.structure(listed) != graph.structure(swapped)


def test_the_facts_are_those_of_the_model():
    found = facts()
    assert (found.opset, found.nodes, found.initializers) == (17, {"Mul": 1, "Sin": 1}, 1)
    assert found.inputs == {"x": ["n", 3]} and found.dtypes == {"x": "float32", "y": "float32"}
    assert found.invalid is None
    assert facts(operator="Own", domain="my.domain").nodes == {"Mul": 1, "my.domain::Own": 1}


def test_a_model_that_onnx_refuses_is_invalid():
    assert facts(operator="NoSuchOperator").invalid[0] == "ValidationError"


def test_nodes_in_branches_count_too():
    output = helper.make_tensor_value_info("b", 1, [3])
    branch = helper.make_graph([helper.make_node("Sin", ["x"], ["b"])], "b", [], [output])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    made = helper.make_model(helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("c", 9, []), helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
    ), opset_imports=[helper.make_opsetid("", 17)])  # fmt: skip
    assert graph.read(made, Serialized(made.SerializeToString())).nodes == {"If": 1, "Sin": 2}


def test_the_structure_ignores_names_and_docs_and_sees_everything_else():
    same = graph.structure(model())
    assert graph.structure(model(inner="other", doc="text")) == same
    assert graph.structure(model(operator="Cos")) != same and graph.structure(model(weight=2.0)) != same
    assert graph.structure(model(weight=[1.0])) != same


@pytest.mark.parametrize("changes, error", [
    ({"name": "z"}, "WrongInputs"), ({"dtype": TensorProto.DOUBLE}, "WrongDtype"), ({"dims": (2, 3)}, "FrozenDim"),
    ({"dims": ("n", 4)}, "WrongDim"), ({"dims": ("n",)}, "WrongRank"),
])  # fmt: skip
def test_a_signature_that_is_not_the_cases_is_a_finding(tmp_path, changes, error):
    case = load_case(tmp_path, BODY)
    assert [one.error for one in graph.signature(case, facts(**changes), ["x"], {"n": 2}, [])] == [error]
    assert not list(graph.signature(case, facts(), ["x"], {"n": 2}, []))


def test_a_static_dim_may_be_frozen_at_the_traced_size_only(tmp_path):
    case = load_case(tmp_path, BODY)
    assert not list(graph.signature(case, facts(dims=(2, 3)), ["x"], {"n": 2}, ["n"]))
    assert [one.error for one in graph.signature(case, facts(dims=(4, 3)), ["x"], {"n": 2}, ["n"])] == ["WrongDim"]


@pytest.mark.parametrize("says, wrong", [
    ({"nodes": {"Sin": 1}}, {"nodes": {"Sin": 2}}),
    ({"nodes": {"Sin": 1, "Mul": 1}, "only": True}, {"nodes": {"Sin": 1}, "only": True}),
    ({"absent": ["Cos"]}, {"absent": ["Sin"]}), ({"inputs": ["x"]}, {"inputs": ["y"]}),
    ({"outputs": ["y"]}, {"outputs": []}), ({"initializers": 1}, {"initializers": 0}),
    ({"dims": {"x": ["symbolic", 3]}}, {"dims": {"x": ["symbolic", "symbolic"]}}),
    ({"dims": {"y": ["n", None]}}, {"dims": {"y": [None]}}),
])  # fmt: skip
def test_what_a_case_says_of_its_graph_holds_or_is_a_finding(says, wrong):
    assert not list(graph.assertions(GraphAssertion(**says), facts()))
    (finding,) = graph.assertions(GraphAssertion(**wrong), facts())
    assert finding.error == "GraphMismatch"


LOOP = """
planted (float[2] x, int64 n, bool c) => (float[2] y, float[n, 2] z) {
    y, z = Loop <body = inner (int64 i, bool going, float[2] s) => (bool on, float[2] t, float[2] u)
        <float one = {1.0}> { on = Identity (going) a = Add (s, one) t = Mul (a, w) u = Add (t, x) }> (n, c, x)
}
"""


def test_a_node_reads_what_its_body_takes_from_around_it_and_not_the_bodys_own():
    read = reads.Graph(model_of(LOOP, w=np.ones(2, np.float32)))
    assert {*read.readers} == {"n", "c", "x", "w"}
