"""Failures that a case declares of a precision: which cells owe them."""

import numpy as np

from conformance.results.records.record import Record
from tests.kit.cases import say
from tests.kit.runtimes import ANY_OPTIMIZER
from tests.models.planted_precision.support import (
    BODY,
    NET,
    Change,
    all_of,
    fresh,
    scale_off_by_two,
    zero_point_off_by_one,
)


def fails(when: str, stage: str = "compare", error: str = "LowFidelity") -> str:
    return f"fails:\n  - {{when: {{{when}}}, stage: {stage}, error: {error}, because: planted}}"


AT_INT8 = BODY.replace("fp16: {}, ", "")


def at_int8(change: Change) -> Change:
    """Leaves fp16 models as they are."""

    def only(model):
        if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
            change(model)

    return only


def statuses(records: dict[str, Record]) -> dict[str, str]:
    return {name: record.status for name, record in records.items() if record.status != "passed"}


def test_a_declared_loss_is_expected_of_fidelity_and_owed_by_it_alone(bench, break_conversion):
    body = say(BODY, fails("precision: int8"))
    assert statuses(all_of(bench, body)) == {"fidelity int8": "xpassed"}
    break_conversion(at_int8(scale_off_by_two), checked=True)
    assert statuses(all_of(fresh(bench), body)) == {"fidelity int8": "xfailed"}


def test_a_declared_failure_of_the_conversion_is_owed_by_both_checks(bench, break_conversion):
    body = say(AT_INT8, fails("precision: int8", "convert", "BrokenRule"))
    assert statuses(all_of(bench, body)) == {"fidelity int8": "xpassed", "accuracy int8": "xpassed"}
    break_conversion(zero_point_off_by_one)
    assert statuses(all_of(fresh(bench), body)) == {"fidelity int8": "xfailed", "accuracy int8": "xfailed"}


def test_a_loss_declared_of_a_runtime_is_owed_by_accuracy(bench, break_runtime):
    body = say(AT_INT8, fails("precision: int8, runtime: onnxruntime", error="WrongValue"))
    assert statuses(all_of(bench, body)) == {"accuracy int8": "xpassed"}
    break_runtime(lambda inputs, outputs: [one * np.float32(3) for one in outputs])
    assert statuses(all_of(bench, body)) == {"accuracy fp32": "failed", "accuracy int8": "xfailed"}


def wrong_at_four(inputs, outputs):
    return [outputs[0] + 1] if len(inputs["x"]) == 4 else outputs


def test_draws_that_are_declared_to_fail_in_fp32_are_left_out_of_converted_cells(bench, break_runtime):
    break_runtime(wrong_at_four, *ANY_OPTIMIZER)
    assert statuses(all_of(bench, AT_INT8)) == {"accuracy fp32": "failed", "accuracy int8": "failed"}
    declared = say(AT_INT8, fails("at: {batch: 4}", error="WrongValue"))
    assert statuses(all_of(bench, declared)) == {"accuracy fp32": "xfailed"}


def test_draws_that_are_declared_to_fail_at_one_precision_run_at_the_others(bench, break_runtime):
    break_runtime(wrong_at_four)
    body = say(AT_INT8, fails("at: {batch: 4}, precision: int8, runtime: onnxruntime", error="WrongValue"))
    assert statuses(all_of(bench, body)) == {"accuracy fp32": "failed", "accuracy int8": "xfailed"}


def test_a_model_that_is_declared_to_be_wrong_in_fp32_is_not_converted(bench):
    cells = bench.cells(say(BODY, fails("runtime: onnxruntime", error="WrongValue")), NET)
    assert {cell.precision for cell in cells} == {"fp32"}
