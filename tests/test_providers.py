"""ONNX Runtime's other execution providers: absent, leaving nodes to the CPU, or wrong."""

from typing import Any

import onnxruntime
import pytest

from conformance.errors import Unavailable
from conformance.runtimes import opener, registry
from conformance.runtimes.providers import absence
from tests.kit.cases import PASSED, Bench, say, verdict
from tests.kit.runs import run_suite

ABSENT = {word: entry for word, entry in registry.PROVIDERS.items()
          if entry[0] not in onnxruntime.get_available_providers()}  # fmt: skip
WORD = next(iter(ABSENT))
PROVIDER = ABSENT[WORD][0]
NAME = f"onnxruntime-{WORD}"
CASE = f"""
sine:
  about: on a provider that this ONNX Runtime lacks
  forward: torch.sin(x)
  inputs: {{x: "float32[batch, 3]"}}
  dims: {{batch: 1..4}}
  export: {{torchscript: [17]}}
  runtimes: [onnxruntime, {NAME}]
  specials: false
"""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An ONNX Runtime that says it has the provider, which leaves all nodes to the CPU; what it was given."""
    seen: dict[str, Any] = {"wrong": 0.0, "goes on without": False}
    original = onnxruntime.InferenceSession

    class Session(original):  # type: ignore[misc, valid-type]
        def __init__(self, model: Any, options: Any = None, providers: Any = (), **more: Any) -> None:
            names = [one if isinstance(one, str) else one[0] for one in providers]
            self.named = names
            if PROVIDER in names:
                seen["providers"] = list(providers)
            kept = [one for one in providers if one not in providers[: names[0] == PROVIDER]]
            super().__init__(model, options, providers=kept or None, **more)

        def get_providers(self) -> list[str]:
            return self.named[1:] if seen["goes on without"] else self.named

        def run(self, names: Any, inputs: Any, *arguments: Any) -> Any:
            outputs = super().run(names, inputs, *arguments)
            return [output + seen["wrong"] for output in outputs] if PROVIDER in self.named else outputs

    known = [PROVIDER, *onnxruntime.get_available_providers()]
    for name, planted in (("InferenceSession", Session), ("get_available_providers", lambda: known)):
        monkeypatch.setattr(onnxruntime, name, planted)
    return seen


def cell(bench: Bench) -> Any:
    body = say("forward: torch.sin(x)", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..4}",
               "export: {torchscript: [17]}", f"runtimes: [{NAME}]")  # fmt: skip
    return bench.cell(body)


@pytest.mark.parametrize("word", ABSENT)
def test_a_provider_that_is_not_here_says_what_is_and_which_package_has_it(word):
    provider, _, package = ABSENT[word]
    reason = absence(provider)
    assert reason is not None and reason == registry.absence(f"onnxruntime-{word}")
    assert reason.startswith(f"this ONNX Runtime has no {provider} (it has ") and "CPUExecutionProvider" in reason
    assert reason.endswith(f"one that has: {package}")


def test_cells_of_a_provider_that_is_not_here_are_skipped_or_fail_where_it_is_required(tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "sine.yaml").write_text(CASE, encoding="utf-8")
    done = run_suite(tmp_path)
    record = done.records[f"accuracy[sine-torchscript-op17-{NAME}-fp32]"]
    assert done.code == 0
    assert record["status"] == "skipped" and f"no {PROVIDER}" in record["reason"] and f"no {PROVIDER}" in done.text
    done = run_suite(tmp_path, "--require", NAME)
    assert done.code == 1 and done.records[record["id"]]["error"] == "NotRun"


def test_nodes_are_counted_by_where_they_ran(bench, provider):
    record = bench.run_cell(cell(bench))
    assert verdict(record) == PASSED and record.arithmetic["provider"] == PROVIDER
    assert record.arithmetic["nodes"] == {"CPUExecutionProvider": 1}
    assert [one if isinstance(one, str) else one[0] for one in provider["providers"]] == [
        PROVIDER, "CPUExecutionProvider",
    ]  # fmt: skip


def test_a_provider_that_leaves_nodes_to_the_cpu_has_failed_where_that_is_forbidden(bench, provider):
    record = bench.run_cell(cell(bench), require_provider=True)
    assert (record.status, record.stage, record.fault) == ("failed", "load", "runtime")
    assert "fallback" in f"{record.reason}" and {witness["answer"] for witness in record.witnesses} == {"agrees"}
    assert len(provider["providers"]) == 1, "that of the CPU would conflict"


def test_a_provider_that_is_wrong_is_at_fault(bench, provider):
    provider["wrong"] = 0.5
    record = bench.run_cell(cell(bench))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert {witness["answer"] for witness in record.witnesses} == {"agrees"}


def test_a_session_without_the_provider_is_not_taken_for_one_with_it(provider, tmp_path):
    bench = Bench(tmp_path, tmp_path / "store")  # with one model
    provider["goes on without"] = True
    record = bench.run_cell(cell(bench))
    assert record.status == "skipped" and f"goes on without its {PROVIDER}" in f"{record.reason}"
    (model,) = bench.store.glob("*/model.onnx")
    with pytest.raises(Unavailable), opener(NAME)(model, ()):
        pass
