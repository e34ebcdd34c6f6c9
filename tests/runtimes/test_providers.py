"""ONNX Runtime's other execution providers: absent, leaving nodes to the CPU, or wrong."""

import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from conformance.process.errors import Unavailable
from conformance.runtimes import onnxruntime as ours
from conformance.runtimes import opener, plugin_providers, providers, registry
from conformance.runtimes.providers import absence
from tests.kit.cases import PASSED, Bench, say, verdict
from tests.kit.models import model_of
from tests.kit.runs import run_suite

ABSENT = {word: entry for word, entry in registry.PROVIDERS.items()
          if entry[0] not in onnxruntime.get_available_providers()
          and entry[2].replace("-", "_") not in plugin_providers.modules()}  # fmt: skip
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


# ---- providers in a library of their own ---------------------------------------------------------------------

RTX = "NvTensorRTRTXExecutionProvider"
MODULE = "onnxruntime_ep_nv_tensorrt_rtx"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module of a provider's library as if it were installed; what registering it does is ``register``."""
    module: Any = types.ModuleType(MODULE)
    module.get_ep_name, module.get_library_path = lambda: RTX, lambda: str(tmp_path / "libprovider.so")
    (tmp_path / "libprovider.so").write_bytes(b"\0ep.nvtensorrtrtxexecutionprovider.nv_max_workspace_size\0nv_dump\0")
    module.register = lambda name, path: None
    monkeypatch.setattr(plugin_providers, "modules", lambda: (MODULE,))
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.setattr(
        onnxruntime, "register_execution_provider_library", lambda name, path: module.register(name, path)
    )
    plugin_providers.devices.cache_clear()
    yield module
    plugin_providers.devices.cache_clear()


def test_a_library_that_cannot_be_registered_says_why(library):
    def refuse(name: str, path: str) -> None:
        raise RuntimeError(f"Failed to load library {path} with error: libcuda.so.1: cannot open shared object file")

    library.register = refuse
    with pytest.raises(Unavailable, match=r"library of ONNX Runtime's Nv.* cannot be registered: .*libcuda\.so\.1"):
        plugin_providers.devices(RTX)


def test_a_library_that_knows_no_device_says_so(library):
    with pytest.raises(Unavailable, match="NvTensorRTRTXExecutionProvider knows no device on this host"):
        plugin_providers.devices(RTX)


def test_a_host_without_a_driver_for_a_provider_says_what_that_lacks(monkeypatch):
    said = "Failed to get a WebGPU adapter: No supported adapters"
    line = f"[ONNXRuntimeError] : 1 : FAIL : {'path/' * 80}webgpu_context.cc:136 {said}"
    ended = subprocess.CompletedProcess([], 1, "", f"Traceback:\n{line}\n")
    monkeypatch.setattr(providers.subprocess, "run", lambda *_, **__: ended)
    told = str(absence.__wrapped__("WebGpuExecutionProvider"))
    assert told.startswith("ONNX Runtime's WebGpuExecutionProvider cannot run here: ... ") and told.endswith(said)
    assert "path/" not in told and len(told) < 400


def test_a_session_takes_the_provider_from_its_devices(library, monkeypatch, tmp_path):
    """Here those of the CPU, which make a session that is not taken for one with the provider."""
    model = tmp_path / "model.onnx"
    model.write_bytes(model_of("g (float[N] x) => (float[N] y) { y = Sin(x) }").SerializeToString())
    cpu = [device for device in onnxruntime.get_ep_devices() if device.ep_name == "CPUExecutionProvider"]
    asked: list[str] = []

    def devices(provider: str) -> list[Any]:
        asked.append(provider)
        return cpu if provider == RTX else []

    monkeypatch.setattr(ours, "devices", devices)
    with (
        pytest.raises(Unavailable, match=f"goes on without its {RTX}"),
        opener("onnxruntime-tensorrt-rtx")(model, ()),
    ):
        pass
    assert RTX in asked


def test_an_option_that_a_provider_does_not_know_is_refused_with_those_that_it_has(library):
    for key in ("nv_max_workspace_size", "nv_dump"):
        ours.check_config({f"{ours.prefix(RTX)}{key}": "1"}, RTX)
    with pytest.raises(ValueError, match=f"{RTX} has no option 'nv_size'; it has nv_max_workspace_size$"):
        ours.check_config({f"{ours.prefix(RTX)}nv_size": "1"}, RTX)


def test_a_module_that_cannot_be_imported_is_named_where_its_provider_is_looked_for(library, monkeypatch):
    monkeypatch.setattr(plugin_providers, "modules", lambda: ("onnxruntime_ep_there_is_none",))
    with pytest.raises(Unavailable, match="onnxruntime_ep_there_is_none, which may bring it, raises ModuleNotFound"):
        plugin_providers.devices(RTX)


@pytest.mark.parametrize(("text", "said"), [
    ("def get_ep_name(): return 'ToyExecutionProvider'", "this ONNX Runtime has no Toy|knows no device|registered"),
    ("raise OSError('no toy here')", "the provider of onnxruntime-ep-toy is left out: onnxruntime_ep_toy raises"),
])  # fmt: skip
def test_a_package_with_a_provider_is_found_by_the_names_of_its_module_and_its_functions(tmp_path, text, said):
    (tmp_path / "onnxruntime_ep_toy").mkdir()
    (tmp_path / "onnxruntime_ep_toy" / "__init__.py").write_text(
        f"{text}\ndef get_library_path(): return '/there/is/none.so'\n", encoding="utf-8"
    )
    code = "from conformance.runtimes import registry as r\nn = 'onnxruntime-toy'\n"
    code += "print(r.absence(n) if n in r.RUNNING else r.LEFT_OUT[n])"
    path = os.pathsep.join(map(str, (Path(__file__).parents[2], tmp_path)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    assert re.search(said, done.stdout), done


def test_options_of_a_provider_stand_in_a_case_and_go_before_them_on_the_command_line(bench, provider):
    own = ours.prefix(PROVIDER)
    config = f"{own}intra_op_num_threads: 3, {own}session: 1, {ours.prefix(RTX)}of_another: 1"
    body = say("forward: torch.sin(x)", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..4}",
               "export: {torchscript: [17]}", f"runtimes: [{NAME}, onnxruntime]",
               f"onnxruntime: {{config: {{{config}}}}}")  # fmt: skip
    plain, other_cell = (one for one in bench.cells(body) if one.check == "accuracy")
    record = bench.run_cell(plain, provider_option={"session": "2"})
    assert verdict(record) == PASSED
    given = dict(provider["providers"][:1])[PROVIDER]
    assert (given["intra_op_num_threads"], given["session"]) == ("3", "2")
    assert verdict(bench.run_cell(other_cell, provider_option={"session": "2"})) == PASSED
    wrong = bench.run_cell(plain, provider_option={"sesion_of_no_name": "2"})
    assert verdict(wrong) == ("failed", "load", "UnknownOption", "case"), wrong.reason


def test_a_provider_that_is_built_in_needs_no_library(library):
    library.register = lambda name, path: pytest.fail("registered")
    assert plugin_providers.devices("CPUExecutionProvider") == plugin_providers.devices("CUDAExecutionProvider") == []
