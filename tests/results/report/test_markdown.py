"""The summary in Markdown: what failed, within its limits, with hostile text in its code spans."""

import re

import pytest

from conformance.results.report.markdown import summary
from tests.results.report.support import (
    HEADER,
    HOSTILE,
    KILLED,
    change,
    failed,
    hostile,
    hostile_change,
    hostile_header,
    record,
)

pytestmark = pytest.mark.smoke


def test_the_summary_names_failures_with_fault_and_place():
    found = summary(HEADER, [record("sound"), failed(), record("skipped", status="skipped", reason="no GPU")])
    (row,) = (line for line in found.splitlines() if line.startswith("| `accuracy"))
    assert row.split(" | ") == [
        "| `accuracy[asinh-dynamo-op20-onnxruntime-fp32]`", "`the runtime`", "`compare`",
        "`3 of 24 elements of output 0 differ`", "`cases/asinh.yaml:7` |",
    ]  # fmt: skip
    assert found.startswith("### ❌ Conformance: 3 cells: 1 failed, 1 skipped, 1 passed")
    assert "- 1 × `no GPU`" in found and "did not finish" not in found
    assert "did not finish" in summary(KILLED, [record()])


def test_the_summary_tells_what_blocks_apart_from_what_does_not():
    changes = [
        change("a", "slower"), change("b", "vanished", accepted=True), change("c", "faster", regression=False),
    ]  # fmt: skip
    found = summary(HEADER, [record()], changes)
    assert "1 regressions, 1 accepted regressions, 1 other changes" in found
    before, _, folded = found.partition("2 changes that block nothing")
    assert "`slower`" in before and "`vanished`" not in before and "`vanished`" in folded and "`faster`" in folded


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_stays_in_its_code_span(name):
    """A small reader of the two rules that matter: cells of a row end at a bare ``|``, spans at an equal fence."""
    poison = HOSTILE[name]
    found = summary(hostile_header(poison), [hostile(poison)], [hostile_change(poison)])
    found.encode("utf-8")
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\u2028]", found)
    table = [line for line in found.splitlines() if line.startswith("| `")]
    assert len(table) == 2  # a failure and a change
    for line, width in zip(table, (5, 3), strict=True):
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        assert len(cells) == width
        for cell in cells:
            inner = cell.strip().replace("\\|", "|")
            fence = re.match("`+", inner)
            assert fence and inner.endswith(fence[0])
            content = inner[len(fence[0]) : -len(fence[0])]
            assert len(fence[0]) not in [len(run) for run in re.findall("`+", content)]
    (finding,) = (line.partition(":** ")[2] for line in found.splitlines() if line.startswith("**1 of 1:** "))
    fence = re.match("`+", finding)
    assert fence and finding.endswith(fence[0])
    assert len(fence[0]) not in [len(run) for run in re.findall("`+", finding[len(fence[0]) : -len(fence[0])])]
    blocks = re.compile(r"^(`{3,})text\n.*?\n\1$", re.S | re.M)
    outside = [
        line for line in blocks.sub("", found).splitlines() if not line.startswith(("| `", "**1 of 1", "- 1 × `"))
    ]
    assert [line for line in outside if poison[:40] in line] == []


def test_the_sign_of_a_summary_is_that_of_the_job():
    """A release waits for what is gone, too, and a run that was killed or skipped everything has shown nothing."""
    gone = change("a[b]", "vanished")
    skipped = record(status="skipped", reason="no GPU")
    assert summary(HEADER, [record()]).startswith("### ✅")
    assert summary(HEADER, [record(), skipped], [change("a[b]", "vanished", accepted=True)]).startswith("### ✅")
    assert summary(HEADER, [record()], [gone]).startswith("### ❌")
    assert summary(KILLED, [record()]).startswith("### ❌")
    assert summary(HEADER, [record(status="xpassed")]).startswith("### ❌")
    assert summary(HEADER, [skipped]).startswith("### ⚪")


def test_a_block_is_not_closed_by_its_text():
    found = summary(HEADER, [failed(command="a\n````\nb")]).splitlines()
    fences = [line for line in found if line.startswith("`````") or line == "````"]
    assert fences == ["`````text", "`````"] * 2


def test_the_summary_stays_within_its_limits():
    many = [failed(f"case{number}", reason="é" * 300, fault=None) for number in range(300)]
    full = summary(HEADER, many)
    assert full.count("| `accuracy") == 30 and "and 270 more failed." in full
    small = summary(HEADER, many, limit_bytes=4000)
    assert 0 < small.count("| `accuracy") < 30 and len(small.encode()) <= 4000
    with pytest.raises(ValueError, match="bytes at least, and 10 are allowed"):
        summary(HEADER, many, limit_bytes=10)
