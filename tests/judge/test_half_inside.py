"""Modules that compute in 16 bits between float32 inputs and outputs are held to the tolerance of 16 bits."""

import numpy as np
import pytest

from conformance.case.draw.draw import Draw
from tests.kit.cases import PASSED, module_of, verdict
from tests.kit.judging import verifying
from tests.kit.modules import net_of
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

HALF = net_of(
    "self.two(torch.relu(self.one(x.half()))).float()", one="Linear(32, 32).half()", two="Linear(32, 32).half()"
)
CAST = net_of(
    "x.float()", "with torch.autocast('cpu', torch.bfloat16): x = self.two(torch.relu(self.one(x)))",
    one="Linear(32, 32)", two="Linear(32, 32)",
)  # fmt: skip
EXACT = net_of("x * (x > 0).half().float()")
"""A number of 16 bits that is 0 or 1 rounds nothing."""
BODY = module_of("Net", shape="batch, 32")


def test_what_a_runtime_rounds_otherwise_in_16_bits_is_right_and_the_record_says_so(bench):
    """By half of what a number of 16 bits is rounded by, on whatever processor."""
    with wrong_runtime(lambda inputs, outputs: [outputs[0] * np.float32(1 + 2**-12)], *ANY_OPTIMIZER):
        record = bench.run(BODY, HALF)
    assert verdict(record) == PASSED and record.examples > 0
    (warned,) = [one for one in record.warnings if one["name"] == "half"]
    assert warned["error"] == "float16" and "compared by the tolerance of that" in warned["text"]


def test_a_wrong_value_of_a_module_with_16_bits_inside_is_found(bench):
    def off(inputs, outputs):
        return [outputs[0] + np.float32(0.1) * np.abs(outputs[0]).max()]

    with wrong_runtime(off, *ANY_OPTIMIZER):
        record = bench.run(BODY, HALF)
    assert (record.status, record.stage) == ("failed", "compare")


def test_16_bits_that_round_nothing_loosen_nothing(bench):
    def off(inputs, outputs):
        return [outputs[0] * np.float32(1.0005)]

    with wrong_runtime(off):
        record = bench.run(BODY, EXACT)
    assert (record.status, record.error) == ("failed", "WrongValue") and not record.warnings


@pytest.mark.parametrize("body, half", [(HALF, "float16"), (CAST, "bfloat16")])
def test_what_is_computed_without_16_bits_is_as_right(bench, body, half):
    """The float64 form of the module has no cast to fewer bits, and rounding moves it by units of those."""
    with verifying(bench, BODY, body) as verify:
        example = verify.example(Draw({"batch": 3}, "plain", 0))
        assert verify.judged(example, [example.wanted[0]]).verdict == "verified"
        verify.reference.find_half(example.inputs)
        (exact,) = verify.reference.oracle(example.inputs)
        assert verify.reference.half == half and 1e-5 < np.abs(exact - example.wanted[0]).max() < 0.02
        assert verify.judged(example, [exact.astype(np.float32)]).verdict == "verified"
        off = exact.astype(np.float32) + np.float32(0.2)
        assert verify.judged(example, [off]).verdict in ("failed", "ill-conditioned")
