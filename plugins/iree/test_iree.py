"""IREE is a runtime that the suite may rely on: ``pytest plugins/iree`` where IREE is installed."""

from conformance_iree.entry import ENTRY

from conformance.testing import check_runtime


def test_iree_is_a_runtime():
    check_runtime(ENTRY)
