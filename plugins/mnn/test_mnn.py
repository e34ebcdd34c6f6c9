"""MNN is a runtime that the suite may rely on: ``pytest plugins/mnn`` where MNN is installed."""

from conformance_mnn.entry import ENTRY

from conformance.testing import check_runtime


def test_mnn_is_a_runtime():
    check_runtime(ENTRY)
