"""``conformance ci``, the action and the GitLab template that call it: each runs in a project of its own."""

import os
import re
import shlex
import shutil
import string
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from tests.kit.code_hosts import CodeHost, code_host
from tests.kit.models import model_of
from tests.kit.runs import ROOT, Outcome, clean_environment, run_command, run_pytest, run_suite
from tests.kit.unrun import UNRUN

pytestmark = pytest.mark.needs("git")

ACTION, TEMPLATE = ROOT / "action.yml", ROOT / "templates" / "conformance.yml"
CASES = """
defaults: {forward: torch.sin(x), inputs: {x: "float32[n, 3]"}, dims: {n: 1..4}, runtimes: onnxruntime,
  specials: false, export: {torchscript: [17]}, about: a test of the harness}
one: {}
"""
BROKEN = f"{CASES}two: {{tags: fails}}\n"
BASELINE = "reports/baseline.jsonl"
RECIPES = ROOT / "docs" / "ci"
Part = tuple[str, dict[str, str]]
"""A script, and its environment."""
HOST = "GITHUB_ACTIONS GITHUB_BASE_REF GITLAB_CI CI_MERGE_REQUEST_TARGET_BRANCH_NAME CI_MERGE_REQUEST_IID"
NO_HOST = dict.fromkeys(HOST.split(), "")
ON_GITHUB = {"GITHUB_RUN_ID": "7", "GITHUB_SERVER_URL": "https://ci.example"}
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
    return run_command(project, "ci", *words, **{**NO_HOST, "PYTHONPATH": str(ROOT), **environment})


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
    assert "<testsuite" in (project / "reports" / "latest" / "junit.xml").read_text(encoding="utf-8")
    assert "\n::error file=cases/all.yaml" in done.text
    summary = (project.parent / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("### ❌ Conformance") and "2 regressions" in summary


def test_a_fork_has_the_summary_and_the_exit_code_stays(project):
    (project / "cases" / "all.yaml").write_text(BROKEN, encoding="utf-8")
    with code_host() as host:
        done = run_ci(project, {}, **on_pull_request(host, project, fork=True))
        assert done.code == 1 and host.asked == []
    assert "from a fork" in (project.parent / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("options, said", [
    ({"--cases": "a", "--model": "b"}, "give one of --cases"),
    ({"--model": "missing.onnx"}, "there is no such file"),
    ({"--options": "-k 'open"}, "No closing quotation"),
], ids=["both", "no model", "quotes"])  # fmt: skip
def test_a_wrong_input_is_said_and_comments_nothing(project, options, said):
    with code_host() as host:
        done = run_ci(project, options, **on_pull_request(host, project))
        assert done.code != 0 and host.bodies == []
    assert said in done.text


def test_a_base_branch_that_cannot_be_fetched_is_no_green_run(project):
    git(project, "remote", "set-url", "origin", str(project.parent / "gone"))
    done = run_ci(project, {}, GITHUB_BASE_REF="main")
    assert done.code == 2 and "git fetch" in done.text


@pytest.mark.parametrize("text, code", [(CASES, 0), (BROKEN, 1)], ids=["sound", "red"])
def test_runs_of_other_jobs_are_joined_and_compared(project, text, code):
    accept(project)
    (project / "cases" / "all.yaml").write_text(text, encoding="utf-8")
    for number in (1, 2):
        run_suite(project, *UNRUN, "--shard", f"{number}/2", "--report", f"shards/{number}")
    done = run_ci(project, {"--shards": "shards/*"})
    assert done.code == code, done.text
    assert (project / "reports" / "latest" / "report.html").is_file()
    assert run_ci(project, {"--shards": "shards/*", "--baseline": ""}).code == code
    shutil.rmtree(project / "shards" / "2")
    assert run_ci(project, {"--shards": "shards/*"}).code == 2
    assert run_ci(project, {"--shards": "none/*"}).code == 2


# ---- the action, the template, and the recipes that use them ----------------------------------------------


def read(file: Path | str) -> list[Any]:
    text = file.read_text(encoding="utf-8") if isinstance(file, Path) else file
    return list(YAML(typ="safe").load_all(text))


def filled(text: object, known: dict[str, str]) -> str:
    """A text with what a host puts in the place of its expressions."""
    return re.sub(r"\$\{\{ (\S+) \}\}|\$\[\[ (\S+) \]\]", lambda found: known[found[1] or found[2]], str(text))


def steps(inputs: dict[str, str]) -> Iterator[Part]:
    """The shell of the action, with its environment."""
    (action,) = read(ACTION)
    assert set(inputs) <= set(action["inputs"])
    context = {"github.job": "net", "github.token": "t", "github.action_path": str(ROOT)}
    known = {f"inputs.{name}": filled(told["default"], context) for name, told in action["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in inputs.items()} | context
    for step in action["runs"]["steps"]:
        if "run" in step:
            yield step["run"], {name: filled(value, known) for name, value in step.get("env", {}).items()}


def job(inputs: dict[str, str], context: dict[str, str] | None = None) -> Iterator[Part]:
    """The shell of the template, with its environment."""
    head, body = read(TEMPLATE)
    assert set(inputs) <= set(head["spec"]["inputs"])
    known = {f"inputs.{name}": str(told["default"]) for name, told in head["spec"]["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in inputs.items()}
    (made,) = body.values()
    environment = {name: filled(value, known) for name, value in made["variables"].items()}
    environment = {name: string.Template(value).safe_substitute(context or {}) for name, value in environment.items()}
    for text in (*made["before_script"][2:], *made["script"]):
        yield text, environment


def keep(project: Path, inputs: dict[str, str], folder: Path) -> None:
    """Move what the action keeps of a job into a folder, as the host does, below what all paths share."""
    (action,) = read(ACTION)
    (upload,) = (step["with"] for step in action["runs"]["steps"] if "upload-artifact" in step.get("uses", ""))
    assert upload["include-hidden-files"] is True, "else .conformance/ is left out"
    for path in filled(upload["path"], {"inputs.working-directory": ".", **inputs}).split():
        if (project / path).exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).rename(folder / path)


def run_shell(project: Path, parts: Iterable[Part], environment: dict[str, str]) -> Outcome:
    """Run the steps of a job; pip is a stand-in that writes down what it is to install."""
    programs = project.parent / "bin"
    programs.mkdir(exist_ok=True)
    installed = shlex.quote(str(project.parent / "installed"))
    for name, text in {
        "python": f'[ "$2" = pip ] && echo "$*" >> {installed}',
        "conformance": f'exec {shlex.quote(sys.executable)} -m conformance "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    known = {**clean_environment(), **NO_HOST, **environment, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
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


def given(step: dict[str, Any], context: dict[str, str] | None = None) -> dict[str, str]:
    """The inputs of a step of a workflow that uses the action."""
    return {name: filled(value, context or {}) for name, value in (step.get("with") or {}).items()}


def of_guide() -> tuple[Any, Any]:
    """The ten lines for GitHub, and those for GitLab, with which the guide begins."""
    text = (ROOT / "docs" / "gating.md").read_text(encoding="utf-8")
    github, gitlab = re.findall(r"```yml\n(.*?)```", text, re.S)[:2]
    assert len(github.splitlines()) <= 10 and len(gitlab.splitlines()) <= 10
    return read(github)[0], read(gitlab)[0]


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_ten_lines_run_cases_also_where_the_base_branch_has_no_baseline(project, kind):
    (project / "cases" / "all.yaml").write_text(BROKEN, encoding="utf-8")
    github, gitlab = of_guide()
    if kind == "github":
        parts = steps(given(github["jobs"]["conformance"]["steps"][-1]))
    else:
        parts = job(gitlab["include"][0].get("inputs", {}))
    with code_host(kind) as host:
        done = run_shell(project, parts, {**on_pull_request(host, project), "PYTEST_ADDOPTS": shlex.join(UNRUN)})
        assert done.code == 1 and len(host.bodies) == 1 and "has no baseline" in host.bodies[0], done.text
    said = f"{BASELINE} is not on the branch main yet: this run is compared with nothing"
    assert said in done.text
    if kind == "github":
        assert said in (project.parent / "summary.md").read_text(encoding="utf-8")
    assert "[torch]" in (project.parent / "installed").read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize("columns, code, said", [(6, 0, "sizes: n 2..6 step 2"), (1009, 1, "no sizes were found: ")])
def test_a_model_is_run_at_sizes_at_which_it_works(project, columns, code, said):
    """One that takes even sizes only, and one that takes none that is tried."""
    graph = f"net (float[n, 3] x) => (float[m, {columns}] y) {{ z = Sin(x) y = Reshape(z, shape) }}"
    model = model_of(graph, shape=np.array([-1, columns]))
    (project / "net.onnx").write_bytes(model.SerializeToString())
    done = run_ci(project, {"--model": "net.onnx", "--options": "--runtime onnxruntime --explain none"})
    assert (done.code, said in done.text) == (code, True), done.text
    assert not (project / "net.onnx.yaml").exists()


@pytest.mark.thorough
def test_the_action_checks_a_model(project):
    model = model_of("net (float[n, 3] x) => (float[n, 3] y) { y = Sin(x) }")
    (project / "net.onnx").write_bytes(model.SerializeToString())
    with code_host() as host:
        done = run_shell(project, steps({"model": "net.onnx"}), on_pull_request(host, project))
        assert done.code == 0 and "✅" in host.bodies[0], done.text
    assert "torch" not in (project.parent / "installed").read_text(encoding="utf-8").rpartition("/")[2]
    assert any(id.endswith("-fp16]") for id in done.records)
    assert not (project / "net.onnx.yaml").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("text, code", [(CASES, 0), (BROKEN, 1)], ids=["sound", "red"])
def test_the_recipe_for_github_ends_as_its_shards_do(project, text, code):
    """Each job in a folder with the cases; artifacts are folders beside it."""
    (project / "cases" / "all.yaml").write_text(text, encoding="utf-8")
    recipe, known = read(RECIPES / "github-actions.yml")[0]["jobs"], {"PYTEST_ADDOPTS": shlex.join(UNRUN)}
    (own,) = (step for step in recipe["cells"]["steps"] if "OWNER" in step["uses"])
    for number in recipe["cells"]["strategy"]["matrix"]["shard"]:
        inputs = given(own, {"matrix.shard": str(number)})
        assert run_shell(project, steps(inputs), known).code in (0, code)
        keep(project, {}, project.parent / f"conformance-{inputs['name']}")
    download, gate = recipe["gate"]["steps"][1:]
    (project / download["with"]["path"]).mkdir()
    for made in project.parent.glob(download["with"]["pattern"]):
        made.rename(project / download["with"]["path"] / made.name)
    done = run_shell(project, steps(given(gate)), known)
    assert done.code == code and (project / "reports" / "latest" / "report.html").is_file(), done.text
    assert run_shell(project, steps(given(recipe["gpu"]["steps"][-1])), known).code == 1, "there is no TensorRT here"


@pytest.mark.thorough
@pytest.mark.parametrize("text, code", [(CASES, 0), (BROKEN, 1)], ids=["sound", "red"])
def test_the_recipe_for_gitlab_ends_as_its_shards_do(project, text, code):
    (project / "cases" / "all.yaml").write_text(text, encoding="utf-8")
    recipe, known = read(RECIPES / "gitlab-ci.yml")[0], {"PYTEST_ADDOPTS": shlex.join(UNRUN)}
    inputs = {one["inputs"]["name"]: one["inputs"] for one in recipe["include"]}
    count = recipe["cells"]["parallel"]
    for number in range(1, count + 1):
        node = {"CI_NODE_INDEX": str(number), "CI_NODE_TOTAL": str(count)}
        assert run_shell(project, job(inputs["cells"], node), known).code in (0, code)
    done = run_shell(project, job(inputs["gate"]), known)
    assert done.code == code, done.text
    assert run_shell(project, job(inputs["gpu"]), known).code == 1, "there is no TensorRT here"


def test_what_the_texts_name_is_kept_with_the_run_and_the_log_says_where(project):
    """A block names folders of the store, which are gone with the job."""
    named = project / ".conformance" / "failing" / "6a1f0173" / "smallest"
    named.mkdir(parents=True)
    (named / "repro.py").touch()
    (project / "cases" / "all.yaml").write_text(BROKEN, encoding="utf-8")
    with code_host() as host:
        done = run_ci(project, {}, **on_pull_request(host, project), **ON_GITHUB)
        (body,) = host.bodies
    where = ".conformance/failing is kept with the artifacts, as is reports/latest: "
    assert where in done.text and where in (project.parent / "summary.md").read_text(encoding="utf-8")
    assert "and the folders that are named here](" in body
    keep(project, {}, project.parent / "kept")
    for file in (".conformance/failing/6a1f0173/smallest/repro.py", "reports/latest/junit.xml"):
        assert (project.parent / "kept" / file).is_file()
    ((made,),) = (body.values() for body in read(TEMPLATE)[1:])
    default = read(TEMPLATE)[0]["spec"]["inputs"]["report"]["default"]
    paths = [filled(path, {"inputs.report": default}) for path in made["artifacts"]["paths"]]
    assert paths == ["reports/latest", ".conformance/failing"]
    junit = filled(made["artifacts"]["reports"]["junit"], {"inputs.report": default})
    assert junit == "reports/latest/junit.xml"


def test_a_run_that_leaves_no_failing_example_names_no_folder(project):
    with code_host() as host:
        done = run_ci(project, {}, **on_pull_request(host, project), **ON_GITHUB)
    assert done.code == 0 and "is kept with the artifacts" not in done.text


def test_a_page_and_a_junit_file_of_the_run_before_are_not_left_beside_the_next(project):
    for name in ("report.html", "junit.xml"):
        (project / "reports" / "latest").mkdir(parents=True, exist_ok=True)
        (project / "reports" / "latest" / name).write_text("of the run before", encoding="utf-8")
    run_suite(project, *UNRUN)
    assert sorted(file.name for file in (project / "reports" / "latest").iterdir()) == ["records.jsonl", "run.json"]


def test_nothing_that_a_host_fills_in_is_part_of_a_script():
    """The name of a branch, say, would be run; values go through the environment."""
    (action,) = read(ACTION)
    assert not any("${{" in step.get("run", "") for step in action["runs"]["steps"])
    assert [text for text, _ in job({}) if "$[[" in text] == []
    uses = [step["uses"] for step in action["runs"]["steps"] if "uses" in step]
    recipe = read(RECIPES / "github-actions.yml")[0]["jobs"].values()
    uses += [step["uses"] for job in recipe for step in job["steps"] if "OWNER" not in step["uses"]]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", one) for one in uses)
    assert len({one.partition("@")[0] for one in uses}) == len({*uses}), "one version of each action"


def test_every_option_of_the_guide_exists(tmp_path):
    guide = (ROOT / "docs" / "gating.md").read_text(encoding="utf-8")
    of_pytest = run_pytest(tmp_path, "--help").text
    known = {"run": of_pytest + of_pytest.replace("--conformance-", "--")}
    calls = re.findall(r"^    conformance (\w+)(.*)", guide, re.M)
    assert {name for name, _ in calls} == {"run", "diff", "accept", "merge", "mutants"}
    for name, words in calls:
        known.setdefault(name, "" if name in known else run_command(tmp_path, name, "--help").text)
        for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", words):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", known[name]), f"{name} {option}"
