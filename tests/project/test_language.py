"""The decoders of ``plugins/language``, which the nightly run alone runs: all that they are for is planned."""

from pathlib import Path

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan

FOLDER = Path(__file__).parents[2] / "plugins" / "language"


def test_each_decoder_goes_step_by_step_in_each_precision_and_runtime():
    cases = [case for file in sorted(FOLDER.glob("*.yaml")) for case in load(file)]
    assert [case.name for case in cases] == ["tiny_llama", "tiny_qwen3", "tiny_gemma2", "tiny_whisper_decoder"]
    for case in cases:
        stepped = {(cell.precision, cell.runtime) for cell in plan(case) if cell.check == "steps"}
        runtimes = ("onnxruntime", "openvino")
        assert stepped == {(bits, name) for bits in ("fp32", "fp16", "bf16", "int4") for name in runtimes}
