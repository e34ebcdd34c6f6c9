"""``conformance ci``, the action and the GitLab template that call it: each runs in a project of its own."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.kit.code_hosts import CodeHost, code_host
from tests.kit.models import model_of
from tests.kit.runs import ROOT, Outcome, clean_environment, run_command, run_suite
from tests.kit.unrun import UNRUN

ACTION, TEMPLATE = ROOT / "action.yml", ROOT / "templates" / "conformance.yml"
CASES = """
defaults: {forward: torch.sin(x), inputs: {x: "float32[n, 3]"}, dims: {n: 1..4}, runtimes: onnxruntime,
  specials: false, export: {torchscript: [17]}, about: a test of the harness}
one: {}
"""
BROKEN = f"{CASES}two: {{tags: fails}}\n"
BASELINE = "reports/baseline.jsonl"
UNRUN_CELLS = {"--options": shlex.join(UNRUN)}


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone with a sound case, whose origin has the branch main."""
    origin, clone = tmp_path / "origin", tmp_path / "net"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(origin)], check=True)
    subprocess.run(["git", "init", "-q", "-b", "main", str(clone)], check=True)
    git(clone, "remote", "add", "origin", str(origin))
    (clone / "cases").mkdir()
    (clone / "cases" / "all.yaml").write_text(CASES, encoding="utf-8")
    push(clone)
    return clone


def push(project: Path) -> None:
    git(project, "add", "cases", *(["reports/baseline.jsonl"] if (project / BASELINE).exists() else []))
    git(project, "commit", "-qm", "a change")
    git(project, "push", "-q", "origin", "HEAD:main")


def run_ci(project: Path, options: dict[str, str], **environment: str) -> Outcome:
    words = [f"{name}={value}" for name, value in {**UNRUN_CELLS, "--baseline": BASELINE, **options}.items()]
    none = dict.fromkeys(("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CI_MERGE_REQUEST_IID"), "")
    return run_command(project, "ci", *words, **{**none, "PYTHONPATH": str(ROOT), **environment})


def accept(project: Path) -> None:
    """Make a baseline of the cases as they are."""
    run_suite(project, *UNRUN)
    assert run_command(project, "accept", "reports/latest", "--baseline", BASELINE, "*", "--because", "x").code == 0


def on_pull_request(host: CodeHost, project: Path, **how: bool) -> dict[str, str]:
    branch = {"github": "GITHUB_BASE_REF", "gitlab": "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"}[host.kind]
    return {**host.environment(project.parent, **how), branch: "main"}


def test_a_pull_request_is_compared_with_its_base_branch_and_has_one_comment(project):
    accept(project)
    push(project)
    (project / "cases" / "all.yaml").write_text(BROKEN, encoding="utf-8")
    accept(project)  # in its own tree, which changes nothing
    with code_host() as host:
        done = run_ci(project, {}, **on_pull_request(host, project))
        (body,) = host.bodies
    assert done.code == 1, done.text
    assert "**Findings against the base branch:** 2 new" in body and "newly failing" not in body
    assert (project / "reports" / "latest" / "report.html").is_file()
    assert "<testsuite" in (project / "reports" / "latest.xml").read_text(encoding="utf-8")
    assert "\n::error file=cases/all.yaml" in done.text
    summary = (project.parent / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("### ❌ Conformance") and "2 regressions" in summary


def test_a_base_branch_without_a_baseline_is_a_sentence(project):
    with code_host() as host:
        done = run_ci(project, {}, **on_pull_request(host, project))
        assert done.code == 0 and len(host.bodies) == 1 and "has no baseline" in host.bodies[0]
    said = f"{BASELINE} is not on the branch main yet: this run is compared with nothing"
    assert said in done.text and said in (project.parent / "summary.md").read_text(encoding="utf-8")


def test_a_fork_has_the_summary_and_the_exit_code_stays(project):
    (project / "cases" / "all.yaml").write_text(BROKEN, encoding="utf-8")
    with code_host() as host:
        done = run_ci(project, {}, **on_pull_request(host, project, fork=True))
        assert done.code == 1 and host.asked == []
    assert "from a fork" in (project.parent / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("options, said", [
    ({"--cases": "cases/missing.yaml"}, "missing"),
    ({"--cases": "a", "--model": "b"}, "--cases or --model"),
    ({"--model": "missing.onnx"}, "there is no such file"),
    ({"--options": "-k 'open"}, "No closing quotation"),
], ids=["no case", "both", "no model", "quotes"])  # fmt: skip
def test_a_wrong_input_is_said_and_comments_nothing(project, options, said):
    with code_host() as host:
        done = run_ci(project, options, **on_pull_request(host, project))
        assert done.code != 0 and host.bodies == []
    assert said in done.text or "missing" in options.get("--cases", "")


def test_a_base_branch_that_cannot_be_fetched_is_no_green_run(project):
    git(project, "remote", "set-url", "origin", str(project.parent / "gone"))
    done = run_ci(project, {}, GITHUB_BASE_REF="main")
    assert done.code == 2 and "git fetch" in done.text


# ---- the action and the template -------------------------------------------------------------------------


def read(file: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(file.read_text(encoding="utf-8")))


def filled(text: str, known: dict[str, str]) -> str:
    """A text with what a host puts in the place of its expressions."""
    return re.sub(r"\$\{\{ (\S+) \}\}|\$\[\[ (\S+) \]\]", lambda found: known[found[1] or found[2]], str(text))


def steps(inputs: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The shell of the action, with its environment."""
    (action,) = read(ACTION)
    known = {f"inputs.{name}": str(told["default"]) for name, told in action["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in inputs.items()}
    context = {"github.job": "net", "github.token": "t", "github.action_path": str(ROOT)}
    known = {name: filled(value, context) for name, value in known.items()} | context
    for step in action["runs"]["steps"]:
        if "run" in step:
            yield step["run"], {name: filled(value, known) for name, value in step.get("env", {}).items()}


def job(inputs: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The shell of the template, with its environment."""
    head, body = read(TEMPLATE)
    known = {f"inputs.{name}": str(told["default"]) for name, told in head["spec"]["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in inputs.items()}
    (made,) = body.values()
    environment = {name: filled(value, known) for name, value in made["variables"].items()}
    for text in (*made["before_script"][2:], *made["script"]):
        yield text, environment


def run_shell(project: Path, parts: Iterator[tuple[str, dict[str, str]]], environment: dict[str, str]) -> Outcome:
    """Run the steps of a job; pip is a stand-in that writes down what it is to install."""
    programs = project.parent / "bin"
    programs.mkdir(exist_ok=True)
    python = shlex.quote(sys.executable)
    for name, text in {
        "python": f'[ "$2" = pip ] && echo "$*" >> {shlex.quote(str(project.parent / "installed"))}',
        "conformance": f'exec {python} -m conformance "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    known = {**clean_environment(), **environment, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    known["PATH"] = f"{programs}{os.pathsep}{known['PATH']}"
    text = ""
    for script, own in parts:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], cwd=project, env={**known, **own}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        text += done.stdout
        if done.returncode:
            return Outcome(project, done.returncode, text)
    return Outcome(project, 0, text)


@pytest.mark.parametrize("made, kind", [(steps, "github"), (job, "gitlab")], ids=["action", "template"])
def test_the_shell_of_each_host_runs_cases_and_ends_as_they_do(project, made, kind):
    (project / "cases" / "all.yaml").write_text(BROKEN, encoding="utf-8")
    options = f"{shlex.join(UNRUN)} -k 'one or two'"
    with code_host(kind) as host:
        known = on_pull_request(host, project)
        done = run_shell(project, made({"options": options, "cases": "cases/all.yaml"}), known)
        assert done.code == 1 and len(host.bodies) == 1, done.text
    assert "[torch]" in (project.parent / "installed").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_action_checks_a_model(project):
    model = model_of("net (float[n, 3] x) => (float[n, 3] y) { y = Sin(x) }")
    (project / "net.onnx").write_bytes(model.SerializeToString())
    with code_host() as host:
        done = run_shell(project, steps({"model": "net.onnx"}), on_pull_request(host, project))
        assert done.code == 0 and "✅" in host.bodies[0], done.text
    assert "torch" not in (project.parent / "installed").read_text(encoding="utf-8").rpartition("/")[2]
    assert any(id.endswith("-fp16]") for id in done.records)


def test_nothing_that_a_host_fills_in_is_part_of_a_script():
    """The name of a branch, say, would be run; values go through the environment."""
    (action,) = read(ACTION)
    assert not any("${{" in step.get("run", "") for step in action["runs"]["steps"])
    assert [text for text, _ in job({}) if "$[[" in text] == []
    used = [step["uses"] for step in action["runs"]["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", one) for one in used)
