"""The first operator that parts, as a run says it, whose cells are in processes of their own."""

from __future__ import annotations

from pathlib import Path

from tests.support import run_suite, write_case

POOL = """
forward: F.avg_pool2d(torch.relu(x) * 2, 2, divisor_override=3)
inputs: {x: "float32[batch, 3, 8, 8]"}
dims: {batch: 1..4}
export: {torchscript: [17], dynamo: [20]}
"""


def test_a_run_names_the_operator_that_parts_as_one_finding(tmp_path: Path) -> None:
    write_case(tmp_path / "cases", POOL, name="pool")
    outcome = run_suite(tmp_path, "--cases", "cases", "--store", "store", "-k", "accuracy and onnxruntime-fp32")
    assert outcome.code == 1, outcome.text
    records = [record for record in outcome.records.values() if record["check"] == "accuracy"]
    assert [record["operator"].get("operator") for record in records] == ["aten.avg_pool2d"] * 2
    source = "F.avg_pool2d(torch.relu(x) * 2, 2, divisor_override=3)"
    assert f"  parts first at cases/pool.yaml:1  {source}  (aten.avg_pool2d)" in outcome.text
    assert "2 red cells: 1 finding" in outcome.text
