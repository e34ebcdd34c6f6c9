"""The page as text: complete, and inert whatever a record says."""

import base64
import hashlib
import html as escapes
import json
import re

import pytest

from conformance.results.records.record import FIELDS
from conformance.results.report import html
from conformance.results.report.html import MOST_SAMPLES, page
from tests.results.report.support import (
    HEADER,
    HOSTILE,
    KILLED,
    cells_of,
    change,
    data_of,
    failed,
    hostile,
    hostile_change,
    hostile_header,
    record,
)


def test_columns_keep_every_value_apart():
    values = [1, 1.0, True, "1", None, {"a": 1}, {"a": 1.0}, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    column = html.column(values)
    assert "rows" in column and json.dumps(cells_of(column)) == json.dumps(values)
    assert html.column(["a", "b", "c"]) == {"values": ["a", "b", "c"]}


@pytest.mark.parametrize("name", HOSTILE)
def test_text_in_a_script_ends_nothing_and_comes_back(name):
    found = html.script_text([HOSTILE[name]])
    assert not set(found) & set("<>&\u2028\u2029\n\x00") and found.isascii()
    assert json.loads(found) == [HOSTILE[name]]


def test_the_policy_allows_what_is_in_the_page_and_nothing_else():
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
def test_hostile_text_adds_no_element_to_the_page(name):
    """The tags of the page are those of a harmless one; ``test_browser`` sees the same in a browser."""

    def tags(poison: str) -> list[str]:
        made = page([(poison, hostile_header(poison), [hostile(poison)])], [hostile_change(poison)])
        made.encode("utf-8")
        return re.findall(r"</?[a-zA-Z!][^\s>]*", made)

    assert tags(HOSTILE[name]) == tags("harmless")


def test_the_page_has_all_fields_of_all_records():
    given = [failed(), record("b"), record("c", runtime=None, check="export")]
    columns = data_of(page([("run", HEADER, given)]))["columns"]
    for name in {*FIELDS} - {"fingerprint", "depends", "again"}:
        assert cells_of(columns[name]) == [getattr(one, name) for one in given], name


def test_what_failed_first_stands_at_the_top_with_its_fault():
    made = page([("run", HEADER, [record("sound"), failed("first", fault="exporter"), failed("second")])])
    top = made[made.index("2 red cells: 2 findings") : made.index("Environment")]
    assert top.index("exporter is wrong") < top.index("accuracy[first-") < top.index("accuracy[second-")
    assert "accuracy[sound" not in top and "cases/first.yaml:7" in top


def test_history_has_each_cell_in_each_run():
    ratio = {"output": 0, "ratio": 0.5}
    earlier = [record("b"), record("gone")]
    now = [record("new"), failed("b", worst=ratio)]
    first, last = data_of(page([("one", KILLED, earlier), ("two", HEADER, now)]))["history"]
    assert (first["name"], first["finished"], last["name"], last["finished"]) == ("one", False, "two", True)
    assert cells_of(first["status"]) == [None, "passed"] and cells_of(last["status"]) == ["passed", "failed"]
    assert cells_of(last["ratio"]) == [None, 0.5]


def test_changes_lead_to_their_cells_and_those_that_block_come_first():
    given = [record("a"), failed("b")]
    changes = [
        change(given[0].id, "graph changed", regression=False), change(given[1].id, "newly failing"),
        change("accuracy[gone]", "vanished", accepted=True),
    ]  # fmt: skip
    made = page([("run", HEADER, given)], changes)
    rows = [(change["kind"], change["row"]) for change in data_of(made)["changes"]]
    assert rows == [("graph changed", 0), ("newly failing", 1)]
    shown = made[made.index("Changes since the baseline: 3") :]
    assert shown.index("newly failing") < shown.index("vanished") < shown.index("graph changed")


def test_samples_are_thinned_and_budgets_know_their_kind():
    side = {"median": 1.0, "samples": [float(number) / 7 for number in range(5000)]}
    budgets = [{"text": "1.2 x pytorch", "limit": 1.2}, {"text": "5 ms", "limit": 0.005}]
    given = record(latency={"own": side, "other": None, "budgets": budgets})
    (latency,) = cells_of(data_of(page([("run", HEADER, [given])]))["columns"]["latency"])
    assert MOST_SAMPLES / 2 < len(latency["own"]["samples"]) <= MOST_SAMPLES and latency["own"]["measured"] == 5000
    assert [budget["relation"] for budget in latency["budgets"]] == [True, False]


def test_the_title_of_a_page_tells_regressions_and_that_nothing_ran():
    skipped = record(status="skipped", reason="no GPU")
    for records, changes, title in (
        ([record()], [], "1 cell, none failed"),
        ([record()], [change("a[b]", "vanished")], "1 cell, none failed, 1 regression"),
        ([record()], [change("a[b]", "vanished", accepted=True)], "1 cell, none failed"),
        ([skipped], [], "1 cell, nothing verified"),
    ):
        assert f"<title>{title}</title>" in page([("run", HEADER, records)], changes)
