"""Records of other versions, of which fields may be missing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from conformance.report import rows
from conformance.report.html import page
from conformance.report.markdown import summary
from tests.report.support import record


def test_a_record_with_the_least_there_is_gets_the_rest() -> None:
    least = {"id": "a[b]", "case": "b", "exporter": "dynamo", "opset": 20, "check": "export", "status": "passed"}
    (row,) = rows.complete([least | {"details": None, "source": None, "of a later version": 1}])
    assert row["details"] == [] and row["source"] == {"file": None, "line": None} and row["runtime"] is None
    assert row["precision"] == "fp32" and row["of a later version"] == 1
    assert "a[b]" in page([("run", {}, [least])])
    assert "1 passed" in summary({}, [least])


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"id": None}, "record 2 lacks id"),
        ({"status": "perhaps"}, "record 2 has the status 'perhaps'"),
    ],
)
def test_what_is_no_record_is_said_with_its_number(broken: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        rows.complete([record(), record() | broken])
