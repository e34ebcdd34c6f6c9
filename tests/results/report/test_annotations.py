"""Annotations of GitHub and findings as SARIF: each where it can be mended, whatever its text says."""

import json

import pytest

from conformance.results.records import text
from conformance.results.records.sanitize import block, visible
from conformance.results.report import annotations
from conformance.results.report.annotations import sarif
from tests.kit.runs import run_command
from tests.results.report.support import HOSTILE, change, failed, hostile, hostile_change, record
from tests.results.report.test_command import write_run


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


def test_a_failure_stands_at_the_line_of_its_case():
    (line,) = annotations.github([record("sound"), failed()])
    kind, properties, message = parsed(line)
    assert (kind, properties["file"], properties["line"]) == ("error", "cases/asinh.yaml", "7")
    assert properties["title"] == failed().id and message == text.failure(failed())


def test_a_failure_stands_at_the_line_of_python_where_that_is_known():
    (line,) = annotations.github([failed(operator={"operator": "aten.div", "line": "cases/net.py:16"})])
    assert (parsed(line)[1]["file"], parsed(line)[1]["line"]) == ("cases/net.py", "16")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_makes_no_further_command(name):
    poison = HOSTILE[name]
    planted = hostile_change(poison, source={"file": poison, "line": 3})
    (failure,), (changed,) = annotations.github([hostile(poison)]), annotations.github([record()], [planted])
    for line, said in ((failure, block(poison)), (changed, visible(poison))):
        kind, properties, message = parsed(line)
        assert kind == "error" and set(properties) == {"file", "line", "title"}
        assert properties["file"] == visible(poison) and message.startswith(said[:3000])
    assert len(parsed(failure)[2]) < 4100


def test_percent_colon_and_comma_are_escaped_as_documented():
    source = {"file": "C:/a,b%0A.yaml", "line": 3}
    (line,) = annotations.github([failed(source=source, stage="run", reason="100% : a,\nb")])
    assert line.startswith("::error file=C%3A/a%2Cb%250A.yaml,line=3,title=accuracy[asinh-")
    assert "::100%25 : a,%0A    b%0A" in line


def test_cells_that_fail_alike_share_a_line():
    lines = list(annotations.github([failed(), failed(opset=18), failed(opset=19, error="WrongShape")]))
    assert len(lines) == 2
    assert parsed(lines[0])[2].endswith("\nthe same in accuracy[asinh-dynamo-op18-onnxruntime-fp32]")


def test_the_last_that_github_shows_counts_the_others():
    many = [failed(f"case{number}") for number in range(14)]
    many += [record(f"skipped{number}", status="skipped", reason=f"reason {number}") for number in range(11)]
    lines = [parsed(line) for line in annotations.github(many)]
    errors, warnings = ([one for one in lines if one[0] == kind] for kind in ("error", "warning"))
    assert len(errors) == len(warnings) == 10
    assert "\n4 more failures are not shown" in errors[-1][2] and "\n1 more reasons are not" in warnings[-1][2]
    assert not any("not shown" in one[2] for one in [*errors[:-1], *warnings[:-1]])
    assert "not shown" not in [*annotations.github(many[:10])][-1]


def test_regressions_that_are_no_failures_stand_at_their_cases():
    source = {"file": "cases/gone.yaml", "line": None}
    gone = {"text": "passed before", "source": source}
    changes = [change(f"{check}[gone]", "vanished", **gone) for check in ("accuracy", "export")]
    changes += [change("export[fine]", "vanished", accepted=True), change(failed().id, "newly failing")]
    lines = [parsed(line) for line in annotations.github([failed()], changes)]
    assert [kind for kind, _, _ in lines] == ["error", "error"]
    _, properties, message = lines[1]
    assert properties == {"file": "cases/gone.yaml", "title": "accuracy[gone]"}
    assert message == "vanished since the baseline: passed before\nthe same in export[gone]"


PLACED = {"operator": {"operator": "aten.index_add", "line": "cases/net.py:16"}, "fault": "exporter"}


def test_a_finding_is_one_result_at_the_line_of_python_and_names_its_cells():
    log = sarif([record("sound"), failed(**PLACED), failed(opset=18, **PLACED)], "0.2.0")
    (run,) = log["runs"]
    (result,) = run["results"]
    (place,) = (one["physicalLocation"] for one in result["locations"])
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("cases/net.py", 16)
    related = [one["physicalLocation"]["artifactLocation"]["uri"] for one in result["relatedLocations"]]
    assert related == ["cases/asinh.yaml"]
    assert len(result["properties"]["cells"]) == 2
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [result["ruleId"]]


def test_without_a_line_of_python_it_is_at_its_case():
    (result,) = sarif([failed()], "0.2.0")["runs"][0]["results"]
    (place,) = (one["physicalLocation"] for one in result["locations"])
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("cases/asinh.yaml", 7)


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_records_say_the_log_is_json_without_controls(name):
    text = json.dumps(sarif([hostile(HOSTILE[name])], "0.2.0"))
    assert json.loads(text)["version"] == "2.1.0"
    assert not any(ord(character) < 32 and character not in "\n\t" for character in text)


def test_the_command_writes_it(tmp_path):
    write_run(tmp_path / "run", [record("sound"), failed(**PLACED)])
    done = run_command(tmp_path, "report", "run", "--sarif", "out.sarif")
    assert done.code == 0, done.text
    assert json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
