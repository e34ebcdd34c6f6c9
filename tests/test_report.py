"""Reports as data and text: complete for what was found, and inert whatever a case, a path or an exception says."""

from __future__ import annotations

import base64
import hashlib
import html as escapes
import json
import re
from pathlib import Path
from typing import Any

import pytest

from conformance.records import matrix, text
from conformance.records.record import Record, cell_id, cell_label
from conformance.records.run_file import RunWriter
from conformance.report import annotations, command, embed, rows
from conformance.report.clean import cleaned, one_line, visible
from conformance.report.grid import grid
from conformance.report.html import MOST_SAMPLES, page
from conformance.report.markdown import code, summary
from conformance.report.words import verdict

HEADER: dict[str, Any] = {
    "schema": 1,
    "started": "2026-01-02T03:04:05+00:00",
    "environment": {"python": "3.11", "versions": {"torch": "2.9", "tensorrt": None}, "flags": ["conformance", "-q"]},
    "seconds": 12.5,
}
KILLED = {name: value for name, value in HEADER.items() if name != "seconds"}

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": '"><img src=x onerror=alert(1)>',
    "end of script": "</script><script>alert(1)</script>",
    "comment": "<!--<script>",
    "template": "{{7*7}}{% if 1 %}",
    "terminal": "\x1b[31mred\x1b]0;title\x07",
    "reordered": "user\u202eexe.cod\u2066",
    "null": "a\x00b",
    "surrogate": "half \ud800 of a pair",
    "separators": "one\u2028two\u2029three",
    "long": "x" * 10_000,
    "table": "a | b \\| c",
    "fences": "`one` ``two`` ```three``` `",
    "markdown": "[link](https://example.org) **bold** @octocat #1 https://example.org <b>",
    "lines": "first\r\n::error::second\n- third",
    "prototype": "__proto__",
    "constructor": "constructor",
}
"""What text of a record may contain."""


def record(case: str = "asinh", **values: Any) -> dict[str, Any]:
    """A record as plain data; of the accuracy of ONNX Runtime where nothing else is said."""
    which = {"exporter": "dynamo", "opset": 20, "runtime": "onnxruntime", "precision": "fp32", "check": "accuracy"}
    which |= {name: values.pop(name) for name in list(which) if name in values}
    label = cell_label(case, which["exporter"], which["opset"], which["runtime"], which["precision"])
    found = Record(
        id=cell_id(which["check"], label),
        case=case,
        source={"file": f"cases/{case}.yaml", "line": 7},
        examples=24,
        command=f"pytest conformance -k '{label}'",
        seconds={"export": 0.5, "run": 0.25},
        **which,
    ).as_dict()
    return found | {"histogram": None} | values


def failed(case: str = "asinh", **values: Any) -> dict[str, Any]:
    given = {
        "status": "failed",
        "stage": "compare",
        "error": "WrongValue",
        "reason": "3 of 24 elements of output 0 differ",
        "fault": "runtime",
        "witnesses": [{"runtime": "onnx-reference", "answer": "agrees"}],
        "worst": {"output": 0, "index": [1, 2], "got": 0.5, "wanted": 0.25, "error": 0.25, "ratio": 125000.0,
                  "dims": {"batch": 2}},
        "draw": {"dims": {"batch": 2}, "regime": "offset", "seed": 5, "index": 3},
    }  # fmt: skip
    return record(case, **(given | values))


def hostile_fields(poison: str) -> dict[str, Any]:
    """The same text in every field that ``records.text`` makes lines of."""
    places = {"place": poison, "stage": poison, "error": poison, "at": poison, "because": poison, "line": poison}
    return {
        "observed": poison, "conclusion": poison, "no_bundle": poison, "own_code": [poison],
        "inputs": {poison: poison}, "findings": [poison, poison], "hints": [poison],
        "output": [poison], "traceback": [poison],
        "declared": [{"outcome": outcome, **places} for outcome in ("otherwise", "confirmed", "another")],
        "witnesses": [
            {"runtime": poison, "answer": poison},
            {"runtime": poison, "answer": poison, "config": {poison: poison}},
            {"runtime": poison, "answer": "stops", "error": poison},
            {"runtime": poison, "answer": "abstains", "reason": poison},
        ],
    }  # fmt: skip


def hostile(poison: str) -> dict[str, Any]:
    """A record with the same text in every place that holds text from outside; unique by its id."""
    return {
        "id": f"accuracy[{poison}]", "case": poison, "exporter": poison, "opset": 20, "runtime": poison,
        "precision": poison, "check": poison, "source": {"file": poison, "line": 7}, "status": "failed",
        "stage": poison, "error": poison, "reason": poison, "fault": poison,
        "worst": {"output": poison, "index": [poison], "got": poison, "wanted": poison, "error": poison,
                  "ratio": 3.5, "dims": {poison: poison}},
        "draw": {"dims": {poison: poison}, "regime": poison, "seed": poison, "index": 0},
        "signal": poison, "graph": {"opset": 20, "nodes": {poison: 2}, "sha": poison},
        "arithmetic": {poison: poison}, "fidelity": {"output": poison, "sqnr": poison},
        "conversion": {poison: [poison]}, "loss": {poison: poison}, "engine": {poison: {poison: poison}},
        "latency": {"runtime": poison, "at": {poison: poison}, "unit": poison,
                    "budgets": [{"text": f"1.2 x {poison}", "verdict": poison, "ratio": 1.0, "low": 0.9, "high": 1.1,
                                 "limit": 1.2}],
                    "own": {"median": 0.1, "samples": [0.1, 0.2], "rounds": poison},
                    "other": {"median": 0.2, "samples": [0.1, 0.3], "rounds": poison},
                    "throughput": [{"batch": poison, "per_second": poison}]},
        **hostile_fields(poison),
        "histogram": {"edges": [-1, 0, 1], "counts": [1, 2]}, "seconds": {poison: 1.0}, "command": poison,
        "bundle": poison, "fingerprint": poison, "reused": False,
    }  # fmt: skip


def hostile_header(poison: str) -> dict[str, Any]:
    environment = {poison: poison, "versions": {poison: poison}, "flags": [poison], "cpu": {poison: [poison]}}
    return {"schema": 1, "started": poison, "seconds": 1.0, "environment": environment}


def hostile_change(poison: str) -> dict[str, Any]:
    return {"id": f"accuracy[{poison}]", "kind": poison, "regression": True, "accepted": False, "before": poison,
            "after": poison, "text": poison}  # fmt: skip


def data_of(page_text: str) -> Any:
    """What the script reads: the content of the data element, as a browser sees it."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page_text, re.DOTALL)
    return json.loads(found)


def cells_of(column: dict[str, list[Any]]) -> list[Any]:
    return [column["values"][row] for row in column["rows"]] if "rows" in column else column["values"]


# ---- text made harmless ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain äöü ✓ 漢字", "plain äöü ✓ 漢字"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31m", "␛[31m"),
        ("a\x00b\x7f", "a␀b␡"),
        ("a\r\nb", "a␍\nb"),
        ("\u202eexe", "<U+202E>exe"),
        ("\ud800", "<U+D800>"),
        ("\x9b31m", "<U+009B>31m"),
        ("a\u061cb\u00adc", "a<U+061C>b<U+00AD>c"),
        ("\U000e0041", "<U+E0041>"),
    ],
)
def test_what_acts_is_written_out(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_one_line_is_one_line_and_no_longer_than_that() -> None:
    assert one_line(" a\n b\t\tc ") == "a b c"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line(None) == ""


def test_cleaned_data_is_plain_and_exact() -> None:
    value = {"a\x00": [float("inf"), float("nan"), 2**60, 2**50, True, None, "\x1b", (1, 2)]}
    assert cleaned(value) == {"a␀": ["inf", "nan", str(2**60), 2**50, True, None, "␛", [1, 2]]}


# ---- records of other versions -----------------------------------------------------------------------------


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


# ---- words -------------------------------------------------------------------------------------------------


def test_failures_read_as_in_the_terminal() -> None:
    (row,) = rows.complete([failed()])
    assert verdict(row) == text.failure(failed())
    assert "125000" in verdict(row) or "1.25e+05 times what is allowed" in verdict(row)


def test_each_status_has_words_of_its_own() -> None:
    given = [
        record(worst={"output": 0, "ratio": 0.18}, ill_conditioned=2),
        record(status="xfailed", reason="opset 9 lacks it", stage="run", fault="exporter", details=["found: x"]),
        record(status="skipped", reason="tensorrt is not installed", stage="load"),
        record(worst={"output": 0, "ratio": "inf"}),
    ]  # fmt: skip
    passed, declared, skipped, infinite = map(verdict, rows.complete(given))
    assert passed == (
        "passed: 24 examples verified; 2 too ill-conditioned to judge; the largest error is 0.18 of what is allowed"
    )
    assert declared.startswith("failed as declared: opset 9 lacks it\nstage run; at fault: exporter\n  found: x")
    assert skipped == "not run: tensorrt is not installed"
    assert "the largest error is inf" in infinite


def test_a_failure_of_another_version_still_has_words() -> None:
    (row,) = rows.complete([failed(worst={"element": 3})])
    assert verdict(row).startswith("3 of 24 elements of output 0 differ\nstage compare")


# ---- the matrix --------------------------------------------------------------------------------------------


def mixed() -> list[dict[str, Any]]:
    """Every sign of the matrix, and a runtime that was not run."""
    export = {"check": "export", "runtime": None}
    return [
        record("a", **export), record("a"), record("a", check="specials", status="failed"),
        record("b", **export, status="failed"), record("b", status="skipped", reason="no model"),
        record("c", status="xpassed"), record("c", check="specials", status="xfailed"),
        record("d", check="specials", status="xfailed"), record("d"), record("d", opset=18, status="xfailed"),
        record("e", precision="int8", check="fidelity", runtime=None, status="xfailed"),
        record("e", precision="int8"), record("e", precision="int8", runtime="onnx-reference"),
        record("f", precision="fp16", check="fidelity", runtime=None),
        record("a", runtime="tensorrt", status="skipped", reason="tensorrt is not installed"),
        record("b", exporter="torchscript", opset=9), record("b", check="registration", runtime=None, opset=9),
    ]  # fmt: skip


def test_the_matrix_has_the_signs_of_the_terminal() -> None:
    found = grid(rows.complete(mixed()))
    lines = list(matrix.lines(mixed(), width=400))
    for case, cells in zip(found["cases"], found["cells"], strict=True):
        (line,) = (line for line in lines if line.startswith(f"{case} "))
        assert [cell[0] if cell else "·" for cell in cells] == line.split()[1:]
    signs = {cell[0] for cells in found["cells"] for cell in cells if cell}
    assert signs == set("✓xFXsnN")
    assert found["missing"] == ["tensorrt was not run: 1 cells skipped: tensorrt is not installed"]


def test_a_sign_leads_to_the_record_that_decides_it() -> None:
    given = rows.complete(mixed())
    statuses = {
        "✓": "passed",
        "x": "xfailed",
        "F": "failed",
        "X": "xpassed",
        "s": "skipped",
        "n": "xfailed",
        "N": "failed",
    }
    found = grid(given)
    for case, cells in zip(found["cases"], found["cells"], strict=True):
        for sign, first, *others in filter(None, cells):
            assert given[first]["status"] == statuses[sign]
            assert {given[number]["case"] for number in (first, *others)} == {case}
    reached = {number for cells in found["cells"] for cell in cells if cell for number in cell[1:]}
    assert reached == {number for number, row in enumerate(given) if row["runtime"] != "tensorrt"}


def test_a_failure_beside_a_cell_is_not_hidden_by_a_pass_beside_it() -> None:
    given = [record(), record(check="specials", status="failed"), record(check="engine")]
    assert grid(rows.complete(given))["cells"] == [[["N", 1, 0, 2]]]


# ---- the page ----------------------------------------------------------------------------------------------


def test_columns_keep_every_value_apart() -> None:
    values = [1, 1.0, True, "1", None, {"a": 1}, {"a": 1.0}, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    column = embed.column(values)
    assert "rows" in column and json.dumps(cells_of(column)) == json.dumps(values)
    assert embed.column(["a", "b", "c"]) == {"values": ["a", "b", "c"]}


def test_repeated_values_are_told_once() -> None:
    many = [record(f"case{number}") for number in range(200)]
    packed = len(embed.script_text(embed.columns(many, list(many[0]))))
    assert packed < 0.5 * len(json.dumps(many, separators=(",", ":")))


@pytest.mark.parametrize("name", HOSTILE)
def test_text_in_a_script_ends_nothing_and_comes_back(name: str) -> None:
    found = embed.script_text([HOSTILE[name]])
    assert not set(found) & set("<>&\u2028\u2029\n\x00") and found.isascii()
    assert json.loads(found) == [HOSTILE[name]]


def test_the_policy_allows_what_is_in_the_page_and_nothing_else() -> None:
    made = page([("run", HEADER, [record()])])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', made)
    policy = escapes.unescape(policy)
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", made, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    assert made.index("Content-Security-Policy") < made.index("<style>")
    assert "innerHTML" not in made and not re.search(r'(src|href)="(?!#|data:,")', made)
    assert "http://" not in made.replace("http://www.w3.org/2000/svg", "") and "https://" not in made


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_adds_no_element_to_the_page(name: str) -> None:
    """The tags of the page are those of a harmless one; ``test_report_browser`` sees the same in a browser."""

    def tags(poison: str) -> list[str]:
        made = page([(poison, hostile_header(poison), [hostile(poison)])], [hostile_change(poison)])
        made.encode("utf-8")
        return re.findall(r"</?[a-zA-Z!][^\s>]*", made)

    assert tags(HOSTILE[name]) == tags("harmless")


def test_the_page_has_all_fields_of_all_records() -> None:
    given = [failed(), record("b"), record("c", runtime=None, check="export")]
    columns = data_of(page([("run", HEADER, given)]))["columns"]
    for name in set(given[0]) - {"fingerprint"}:
        assert cells_of(columns[name]) == [one[name] for one in given], name


def test_a_run_that_did_not_finish_says_so() -> None:
    assert "This run did not finish" in page([("run", KILLED, [record()])])
    assert "This run did not finish" not in page([("run", HEADER, [record()])])


def test_a_run_without_records_has_a_page() -> None:
    assert data_of(page([("run", KILLED, [])]))["count"] == 0
    assert "0 cells" in summary(KILLED, [])


def test_what_failed_first_stands_at_the_top_with_its_fault() -> None:
    made = page([("run", HEADER, [record("sound"), failed("first", fault="exporter"), failed("second")])])
    top = made[made.index("Failed first") : made.index("Environment")]
    assert top.index("accuracy[first-") < top.index("exporter") < top.index("accuracy[second-")
    assert "accuracy[sound" not in top and "cases/first.yaml:7" in top


def test_history_has_each_cell_in_each_run() -> None:
    ratio = {"output": 0, "ratio": 0.5}
    earlier = [record("b"), record("gone")]
    now = [record("new"), failed("b", worst=ratio)]
    first, last = data_of(page([("one", KILLED, earlier), ("two", HEADER, now)]))["history"]
    assert (first["name"], first["finished"], last["name"], last["finished"]) == ("one", False, "two", True)
    assert cells_of(first["status"]) == [None, "passed"] and cells_of(last["status"]) == ["passed", "failed"]
    assert cells_of(last["ratio"]) == [None, 0.5]


def test_changes_lead_to_their_cells_and_those_that_block_come_first() -> None:
    given = [record("a"), failed("b")]
    changes = [
        {
            "id": given[0]["id"],
            "kind": "graph changed",
            "regression": False,
            "accepted": False,
            "text": "Add: 1 to 2",
        },
        {
            "id": given[1]["id"],
            "kind": "newly failing",
            "regression": True,
            "accepted": False,
            "text": "passed before",
        },
        {"id": "accuracy[gone]", "kind": "vanished", "regression": True, "accepted": True, "text": "is gone"},
    ]
    made = page([("run", HEADER, given)], changes)
    assert [(change["kind"], change["row"]) for change in data_of(made)["changes"]] == [
        ("graph changed", 0),
        ("newly failing", 1),
    ]
    shown = made[made.index("Changes since the baseline: 3") :]
    assert shown.index("newly failing") < shown.index("vanished") < shown.index("graph changed")


def test_samples_are_thinned_and_budgets_know_their_kind() -> None:
    side = {"median": 1.0, "samples": [float(number) / 7 for number in range(5000)]}
    budgets = [{"text": "1.2 x pytorch", "limit": 1.2}, {"text": "5 ms", "limit": 0.005}]
    given = record(latency={"own": side, "other": None, "budgets": budgets})
    (latency,) = cells_of(data_of(page([("run", HEADER, [given])]))["columns"]["latency"])
    assert MOST_SAMPLES / 2 < len(latency["own"]["samples"]) <= MOST_SAMPLES and latency["own"]["measured"] == 5000
    assert [budget["relation"] for budget in latency["budgets"]] == [True, False]


# ---- markdown ----------------------------------------------------------------------------------------------


def test_the_summary_names_failures_with_fault_and_place() -> None:
    found = summary(HEADER, [record("sound"), failed(), record("skipped", status="skipped", reason="no GPU")])
    (row,) = (line for line in found.splitlines() if line.startswith("| `accuracy"))
    assert row.split(" | ") == [
        "| `accuracy[asinh-dynamo-op20-onnxruntime-fp32]`",
        "`runtime`",
        "`compare`",
        "`3 of 24 elements of output 0 differ`",
        "`cases/asinh.yaml:7` |",
    ]
    assert found.startswith("### ❌ Conformance: 3 cells: 1 failed, 1 skipped, 1 passed")
    assert "- 1 × `no GPU`" in found and "did not finish" not in found
    assert "did not finish" in summary(KILLED, [record()])
    assert summary(HEADER, [record()]).startswith("### ✅")


def test_the_summary_tells_what_blocks_apart_from_what_does_not() -> None:
    changes = [
        {"id": "a", "kind": "slower", "regression": True, "accepted": False, "text": "3 ms became 9 ms"},
        {"id": "b", "kind": "vanished", "regression": True, "accepted": True, "text": "gone"},
        {"id": "c", "kind": "faster", "regression": False, "accepted": False, "text": "9 ms became 3 ms"},
    ]
    found = summary(HEADER, [record()], changes)
    assert "1 regressions, 1 accepted regressions, 1 other changes" in found
    before, _, folded = found.partition("2 changes that block nothing")
    assert "`slower`" in before and "`vanished`" not in before and "`vanished`" in folded and "`faster`" in folded


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_stays_in_its_code_span(name: str) -> None:
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
    outside = [line for line in found.splitlines() if not line.startswith(("| `", "- 1 × `"))]
    command = one_line(poison, 2000)
    assert [line for line in outside if poison[:40] in line and line != command and "```" not in line] == []


def test_the_sign_of_a_summary_is_that_of_the_job() -> None:
    """A release waits for what is gone, too, and a run that was killed or skipped everything has shown nothing."""
    gone = {"id": "a[b]", "kind": "vanished", "regression": True, "accepted": False, "text": "x"}
    skipped = record(status="skipped", reason="no GPU")
    assert summary(HEADER, [record()]).startswith("### ✅")
    assert summary(HEADER, [record(), skipped], [{**gone, "accepted": True}]).startswith("### ✅")
    assert summary(HEADER, [record()], [gone]).startswith("### ❌")
    assert summary(KILLED, [record()]).startswith("### ❌")
    assert summary(HEADER, [skipped]).startswith("### ⚪")


def test_the_title_of_a_page_tells_regressions_and_that_nothing_ran() -> None:
    gone = {"id": "a[b]", "kind": "vanished", "regression": True, "accepted": False, "text": "x"}

    def title(records: list[dict[str, Any]], changes: list[dict[str, Any]]) -> str:
        (found,) = re.findall("<title>(.*?)</title>", page([("run", HEADER, records)], changes))
        return str(found)

    assert title([record()], []) == "1 cell, none failed"
    assert title([record()], [gone]) == "1 cell, none failed, 1 regression"
    assert title([record()], [{**gone, "accepted": True}]) == "1 cell, none failed"
    assert title([record(status="skipped", reason="no GPU")], []) == "1 cell, nothing verified"


def test_code_spans() -> None:
    assert code("a | b") == "`a \\| b`"
    assert code("a `b`") == "`` a `b` ``"
    assert code("") == "" and code(None) == ""
    assert len(code("x" * 500)) == 162


def test_a_block_is_not_closed_by_its_text() -> None:
    found = summary(HEADER, [failed(command="a\n````\nb")]).splitlines()
    fences = [line for line in found if line.startswith("`````") or line == "````"]
    assert fences == ["`````text", "`````"]


def test_the_summary_stays_within_its_limits() -> None:
    many = [failed(f"case{number}", reason="é" * 300, fault=None) for number in range(300)]
    full = summary(HEADER, many)
    assert full.count("| `accuracy") == 30 and "and 270 more failed." in full
    small = summary(HEADER, many, limit_bytes=4000)
    assert 0 < small.count("| `accuracy") < 30 and len(small.encode()) <= 4000
    with pytest.raises(ValueError, match="bytes at least, and 10 are allowed"):
        summary(HEADER, many, limit_bytes=10)


# ---- annotations -------------------------------------------------------------------------------------------


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as GitHub's runner reads it."""
    assert "\n" not in line and "\r" not in line
    _, head, message = line.split("::", 2)
    kind, _, properties = head.partition(" ")
    pairs = dict(one.split("=", 1) for one in properties.split(","))

    def plain(text: str) -> str:
        for written, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(written, character)
        return text

    return kind, {name: plain(value) for name, value in pairs.items()}, plain(message)


def test_a_failure_stands_at_the_line_of_its_case() -> None:
    (line,) = annotations.github([record("sound"), failed()])
    kind, properties, message = parsed(line)
    assert (kind, properties["file"], properties["line"]) == ("error", "cases/asinh.yaml", "7")
    assert properties["title"] == failed()["id"]
    assert message == text.failure(failed())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_makes_no_further_command(name: str) -> None:
    poison = HOSTILE[name]
    (line,) = annotations.github([hostile(poison)])
    kind, properties, message = parsed(line)
    assert kind == "error" and set(properties) == {"file", "line", "title"}
    assert properties["file"] == visible(poison) and message.startswith(visible(poison)[:3000])
    assert len(message) < 4100


def test_percent_colon_and_comma_are_escaped_as_documented() -> None:
    source = {"file": "C:/a,b%0A.yaml", "line": 3}
    (line,) = annotations.github([failed(source=source, stage="run", reason="100% : a,\nb")])
    assert line.startswith("::error file=C%3A/a%2Cb%250A.yaml,line=3,title=accuracy[asinh-")
    assert "::100%25 : a,%0Ab%0A" in line


def test_cells_that_fail_alike_share_a_line() -> None:
    lines = list(annotations.github([failed(), failed(opset=18), failed(opset=19, reason="another")]))
    assert len(lines) == 2
    assert parsed(lines[0])[2].endswith("\nthe same in accuracy[asinh-dynamo-op18-onnxruntime-fp32]")


def test_the_last_that_github_shows_counts_the_others() -> None:
    many = [failed(f"case{number}") for number in range(14)]
    many += [record(f"skipped{number}", status="skipped", reason=f"reason {number}") for number in range(11)]
    lines = [parsed(line) for line in annotations.github(many)]
    errors, warnings = ([one for one in lines if one[0] == kind] for kind in ("error", "warning"))
    assert len(errors) == len(warnings) == 10
    assert "\n4 more failures are not shown" in errors[-1][2] and "\n1 more reasons are not" in warnings[-1][2]
    assert not any("not shown" in one[2] for one in [*errors[:-1], *warnings[:-1]])


def test_regressions_that_are_no_failures_stand_at_their_cases() -> None:
    source = {"file": "cases/gone.yaml", "line": None}
    gone = {"id": "accuracy[gone]", "kind": "vanished", "regression": True, "accepted": False, "source": source}
    gone["text"] = "passed before"
    also = {**gone, "id": "export[gone]"}
    fine = {**gone, "id": "export[fine]", "accepted": True}
    red = {**gone, "id": failed()["id"], "kind": "newly failing"}
    lines = [parsed(line) for line in annotations.github([failed()], [gone, also, fine, red])]
    assert [kind for kind, _, _ in lines] == ["error", "error"]
    _, properties, message = lines[1]
    assert properties == {"file": "cases/gone.yaml", "title": "accuracy[gone]"}
    assert message == "vanished since the baseline: passed before\nthe same in export[gone]"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_changes_make_no_further_command(name: str) -> None:
    poison = HOSTILE[name]
    change = {**hostile_change(poison), "source": {"file": poison, "line": 3}}
    (line,) = annotations.github([record()], [change])
    kind, properties, message = parsed(line)
    assert kind == "error" and set(properties) == {"file", "line", "title"}
    assert message.startswith(visible(poison)[:3000])


def test_exactly_ten_leave_nothing_out() -> None:
    lines = list(annotations.github([failed(f"case{number}") for number in range(10)]))
    assert len(lines) == 10 and "not shown" not in lines[-1]


# ---- the command -------------------------------------------------------------------------------------------


def write_run(folder: Path, records: list[dict[str, Any]], killed: bool = False) -> Path:
    writer = RunWriter(folder, KILLED)
    for one in records:
        writer.add(one)
    writer.close(3.0)
    if killed:
        (folder / "run.json").unlink()
        lines = folder / "records.jsonl"
        lines.write_text(lines.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    return folder


def test_all_reports_of_a_run_with_its_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [write_run(tmp_path / "monday", [record()]), write_run(tmp_path / "tuesday", [failed(), record("new")])]
    out = tmp_path / "a" / "b"
    command.report(places, out / "page.html", out / "summary.md", out / "report.json", github=True)
    assert "1 of 2 cells failed" in (out / "page.html").read_text(encoding="utf-8")
    assert (out / "summary.md").read_text(encoding="utf-8").startswith("### ❌")
    found = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert found["records"] == [failed(), record("new")] and found["finished"]
    assert found["history"][record()["id"]] == [
        {"run": "monday", "status": "passed", "ratio": None},
        {"run": "tuesday", "status": "failed", "ratio": 125000.0},
    ]
    assert [run["counts"]["failed"] for run in found["runs"]] == [0, 1]
    assert capsys.readouterr().out.count("::error ") == 1


def test_a_killed_run_is_reported_with_what_it_had(tmp_path: Path) -> None:
    place = write_run(tmp_path / "killed", [record("a"), failed("b"), record("cut")], killed=True)
    command.report([place], tmp_path / "page.html", tmp_path / "summary.md", tmp_path / "report.json")
    made = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "did not finish" in made and data_of(made)["count"] == 2
    assert "did not finish" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["finished"] is False


def test_runs_have_names_that_tell_them_apart(tmp_path: Path) -> None:
    assert command.names([tmp_path / "a", tmp_path / "b" / "run.json"]) == ["a", "b"]
    assert command.names([tmp_path / "x" / "run", tmp_path / "y" / "run"]) == ["x/run", "y/run"]


def test_mistakes_are_said_in_words(tmp_path: Path) -> None:
    place = write_run(tmp_path / "run", [record()])
    with pytest.raises(ValueError, match="at least one run"):
        command.report([], tmp_path / "page.html")
    with pytest.raises(ValueError, match="say what to write"):
        command.report([place])
    with pytest.raises(ValueError, match=r"nowhere: there is no run"):
        command.report([tmp_path / "nowhere"], tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"run: cannot be written"):
        command.report([place], place)
    other = tmp_path / "other.json"
    other.write_text('{"schema": 1, "records": [{"id": "a"}]}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"other\.json: record 1 lacks case"):
        command.report([other], tmp_path / "page.html")
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"latin\.json"):
        command.report([tmp_path / "latin.json"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
