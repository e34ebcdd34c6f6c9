"""The comment on a pull request: what it says, and that there is one, whatever the host answers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.results.report import code_host as writing
from conformance.results.report.comment import LIMIT, comment, marker
from tests.kit.code_hosts import CodeHost, code_host
from tests.kit.runs import Outcome, run_command
from tests.results.report.support import (
    HEADER,
    HOSTILE,
    change,
    failed,
    hostile,
    hostile_change,
    hostile_header,
    record,
)
from tests.results.report.test_command import write_run

pytestmark = pytest.mark.smoke
OURS = marker("net")


@pytest.fixture(params=["github", "gitlab"])
def host(request: pytest.FixtureRequest) -> Iterator[CodeHost]:
    with code_host(request.param) as made:
        yield made


def write(host: CodeHost, folder, body: str = "text", waited: list[float] | None = None) -> None:
    seconds: list[float] = [] if waited is None else waited
    writing.write(writing.thread(host.environment(folder)), f"{OURS}\n{body}", seconds.append)


def test_findings_are_new_still_there_or_gone():
    run = (HEADER, [failed("broken"), failed("older"), record("fixed"), record("slow")])
    base = [record("broken"), failed("older"), failed("fixed"), failed("dropped"), record("slow")]
    slow = record("slow").id
    text = comment("net", run, base, [change(slow, "slower"), change(failed("broken").id, "newly failing")])
    assert text.startswith(f"{OURS}\n### ❌ Conformance: 4 cells: 2 failed, 2 passed")
    assert "**Findings against the base branch:** 1 new, 1 still there, 1 gone" in text
    blocks, _, lists = text.partition("**Worse in another way:**")
    assert "broken" in blocks and "older" not in blocks
    worse, gone, known = re.split(r"\*\*Gone:\*\*|\*\*Still there:\*\*", lists)
    assert slow in worse and "broken" not in worse
    assert "fixed" in gone and "dropped" not in gone, "what did not run shows nothing"
    assert known.count("\n- ") == 1


def test_without_a_baseline_every_finding_is_shown_and_none_is_called_new():
    text = comment("net", (HEADER, [failed()]), None, page="https://ci.example/page")
    assert "has no baseline" in text and "**red:**" in text and "**new" not in text
    assert text.endswith("[The whole report, and the folders that are named here](https://ci.example/page)\n")


def test_a_long_comment_ends_at_a_finding_and_leads_to_the_page():
    many = [failed(f"case{number}", reason=f"{number} " * 200) for number in range(300)]
    text = comment("net", (HEADER, many), [], page="https://ci.example/page")
    assert len(text) <= LIMIT and text.count("```") % 2 == 0
    (left,) = re.findall(r"and (\d+) more findings", text)
    assert text.count("**new:**") == 300 - int(left) and "(https://ci.example/page)" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_stays_in_code(name):
    poison = HOSTILE[name]
    base = [hostile(poison, id=f"accuracy[{poison} gone]")]
    run = (hostile_header(poison), [hostile(poison), record(id=base[0].id)])
    text = comment(poison, run, base, [hostile_change(poison)])
    text.encode("utf-8")
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\u2028]", text)
    prose = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.M | re.S)
    prose = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", prose)
    first, _, rest = prose.partition("\n")
    assert re.fullmatch(r"<!-- conformance: [\w%.~-]+ -->", first)
    assert not re.search(r"[<@#\[]", rest.replace("### ", "", 1)), rest


def test_one_comment_is_edited_and_those_of_others_are_left_alone(host, tmp_path):
    host.add(f"{marker('other job')}\ntheirs")
    host.add(f"{OURS}\nforged", login="mallory", kind="User")
    for number in range(210):
        host.add(f"talk {number}", login="someone", kind="User")
    for body in ("first", "second"):
        write(host, tmp_path, body)
    assert [one for one in host.bodies if one.startswith(OURS)] == [f"{OURS}\nforged", f"{OURS}\nsecond"]
    assert len(host.comments) == 213


def test_of_two_that_were_written_at_once_the_next_run_leaves_the_first(host, tmp_path):
    for body in ("one", "two", "three"):
        host.add(f"{OURS}\n{body}")
    write(host, tmp_path)
    assert [(one["id"], one["body"]) for one in host.comments] == [(1, f"{OURS}\ntext")]


LIMITED = (403, {"Retry-After": "7"}, {"message": "You have exceeded a secondary rate limit"})


@pytest.mark.parametrize("answer, waits", [
    ((500, {}, {}), [1]), ((502, {}, None), [1]), ((429, {"Retry-After": "3"}, {}), [3]), (LIMITED, [7]),
    ((200, {"Content-Type": "text/html"}, ...), [1]),
], ids=["500", "502", "429", "secondary limit", "no JSON"])  # fmt: skip
def test_a_host_that_is_busy_is_asked_again(host, tmp_path, answer, waits):
    left, waited = [answer], []
    host.refuse = lambda method, path: left.pop() if left and path != "/user" and method == "GET" else None
    write(host, tmp_path, waited=waited)
    assert waited == waits and len(host.comments) == 1


def test_an_answer_that_was_lost_makes_no_second_comment(host, tmp_path):
    def lose(method: str, path: str) -> tuple[int, dict[str, str], object] | None:
        if method != "POST" or host.comments:
            return None
        host.add(f"{OURS}\ntext")
        return 504, {}, {}

    host.refuse = lose
    write(host, tmp_path)
    assert host.bodies == [f"{OURS}\ntext"]


REFUSALS = {
    "401": ((401, {}, {"message": "Bad credentials"}), "may not write a comment"),
    "403": ((403, {}, {"message": "Resource not accessible by integration"}), "may not write a comment"),
    "404": ((404, {}, {"message": "Not Found"}), "may not write a comment"),
    "422": ((422, {}, {"message": "Validation Failed"}), "422: Validation Failed"),
    "429": ((429, {"Retry-After": "3600"}, {"message": "later"}), "429: later"),
    "500": ((500, {"Retry-After": "0"}, {"message": "\x1b[31m::error::oops"}), "500: ␛[31m"),
}


def job(host: CodeHost, folder: Path, *words: str, fork: bool = False) -> Outcome:
    """A job that joins the runs of others."""
    known = {**host.environment(folder, fork=fork), "GITHUB_BASE_REF": "main"}
    return run_command(folder, "ci", "--shards=run", *words, **known)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_a_sentence_and_the_exit_code_stays(host, tmp_path, name):
    answer, said = REFUSALS[name]
    host.refuse = lambda method, path: answer if method == "POST" else None
    write_run(tmp_path / "run", [failed()])
    done = job(host, tmp_path)
    assert done.code == 1 and said in done.text and host.comments == []
    if host.kind == "github":
        summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
        assert summary.startswith("### ❌ Conformance") and said in summary and "\x1b" not in summary


def test_a_fork_asks_the_host_nothing(tmp_path):
    write_run(tmp_path / "run", [record()])
    with code_host() as host:
        done = job(host, tmp_path, fork=True)
        assert (done.code, host.asked) == (0, []) and "from a fork" in done.text


@pytest.mark.parametrize("environment, said", [
    ({"GITHUB_ACTIONS": "true"}, "not run for a pull"), ({"GITLAB_CI": "true"}, "not run for a merge request"),
    ({}, "no job of GitHub"), ({"GITLAB_CI": "true", "CI_MERGE_REQUEST_IID": "1"}, "no token"),
], ids=["push", "branch", "by hand", "no token"])  # fmt: skip
def test_where_there_is_nothing_to_comment_on_that_is_said(environment, said):
    with pytest.raises(writing.CommentUnwritten, match=said):
        writing.thread(environment)


def test_a_name_is_one_comment(host, tmp_path):
    write_run(tmp_path / "run", [record()])
    for words in ((), ("--name=other",), (), ("--comment=false", "--name=third")):
        assert job(host, tmp_path, *words).code == 0
    assert [body.split("\n")[0] for body in host.bodies] == [OURS, marker("other")]
