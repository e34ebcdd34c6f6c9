"""The CI files in the docs: valid YAML, jobs that exist, pinned actions, sound shell, options that exist."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
CI = ROOT / "docs" / "ci"
GITHUB, GITLAB, GATE = CI / "github-actions.yml", CI / "gitlab-ci.yml", CI / "gate.sh"

COMMANDS = {"diff", "accept", "merge", "mutants", "report"}
"""Those that the recipes and the guide use."""


def read(file: Path) -> Any:
    return YAML(typ="safe").load(file.read_text(encoding="utf-8"))


def github_steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in read(GITHUB)["jobs"].items():
        for step in job["steps"]:
            yield name, step


def scripts() -> list[tuple[str, str]]:
    """Every piece of shell by the job it is in, with GitHub's expressions filled in."""
    found = [(f"github {job}", step["run"]) for job, step in github_steps() if "run" in step]
    for name, job in gitlab_jobs().items():
        found += [(f"gitlab {name}", text) for text in (*job.get("before_script", []), *job.get("script", []))]
    found.append(("gate.sh", GATE.read_text(encoding="utf-8")))
    return [(where, re.sub(r"\$\{\{.*?\}\}", "1", text)) for where, text in found]


def gitlab_jobs() -> dict[str, dict[str, Any]]:
    return {name: job for name, job in read(GITLAB).items() if name not in ("stages", "variables")}


# ---- structure -----------------------------------------------------------------------------------------


def test_the_github_workflow_says_when_it_runs_and_what_it_may():
    workflow = read(GITHUB)
    assert set(workflow["on"]) == {"push", "pull_request"}
    assert workflow["permissions"] == {"contents": "read"}


def test_github_jobs_need_jobs_that_exist_and_run_somewhere():
    jobs = read(GITHUB)["jobs"]
    assert set(jobs) == {"cells", "latency", "gate", "gpu"}
    for job in jobs.values():
        needs = job.get("needs", [])
        assert {*([needs] if isinstance(needs, str) else needs)} <= set(jobs)
        assert job["runs-on"]
        assert 0 < job["timeout-minutes"] <= 120
    assert jobs["gate"]["needs"] == ["cells", "latency"]


def test_github_steps_do_one_thing_each_with_a_pinned_action():
    used = set()
    for job, step in github_steps():
        assert ("run" in step) != ("uses" in step), (job, step)
        assert set(step) <= {"name", "run", "uses", "with", "if", "env"}, (job, step)
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]), step["uses"]
            used.add(step["uses"])
    assert len({one.partition("@")[0] for one in used}) == len(used), "one version of each action"


def test_the_gate_of_github_gets_what_every_shard_left():
    workflow = read(GITHUB)["jobs"]
    shards = workflow["cells"]["strategy"]["matrix"]["shard"]
    assert shards == list(range(1, len(shards) + 1))
    assert workflow["cells"]["strategy"]["fail-fast"] is False
    script = next(step["run"] for job, step in github_steps() if job == "cells" and "--shard" in step.get("run", ""))
    assert f"/{len(shards)}" in script
    uploaded = next(one["with"] for job, one in github_steps() if job == "cells" and "upload" in one.get("uses", ""))
    assert uploaded["name"] == "shard-${{ matrix.shard }}"
    assert uploaded["if-no-files-found"] == "error"
    steps = workflow["gate"]["steps"]
    downloaded = next(one["with"] for one in steps if "download" in one.get("uses", ""))
    assert downloaded == {"pattern": "shard-*", "path": "shards"}
    called = "bash docs/ci/gate.sh reports/baseline.jsonl reports/merged shards/shard-*"
    assert called in [one.get("run") for one in steps]


def test_what_github_fills_in_is_no_part_of_a_script():
    """A name of a branch, say, would be run; values go through env."""
    assert [step["run"] for _, step in github_steps() if "${{" in step.get("run", "")] == []


def test_gitlab_jobs_have_stages_and_needs_that_exist():
    recipe, jobs = read(GITLAB), gitlab_jobs()
    assert set(jobs) == {".python", "cells", "latency", "gate", "gpu"}
    for name, job in jobs.items():
        if name.startswith("."):
            continue
        assert job["extends"] in jobs
        assert job["stage"] in recipe["stages"]
        assert set(job.get("needs", [])) <= set(jobs)
        assert all(isinstance(line, str) for line in job["script"])
    assert jobs["gate"]["needs"] == ["cells", "latency"]
    assert jobs["cells"]["parallel"] > 1
    assert jobs["cells"]["artifacts"]["when"] == "always"


@pytest.mark.parametrize("file", [GITHUB, GITLAB], ids=lambda file: file.stem)
def test_the_model_store_is_kept_and_tensorrt_is_required(file):
    text = file.read_text(encoding="utf-8")
    assert ".conformance/models" in text
    assert "--runtime tensorrt --require tensorrt" in text


@pytest.mark.parametrize("where", ["github latency", "gitlab latency"])
def test_budgets_of_time_are_measured_alone_and_joined_with_the_shards(where):
    """With -n they are skipped, so that the shards cannot have them."""
    (text,) = (text for name, text in scripts() if name == where and "pytest" in text)
    assert "-m latency --report reports/shard-latency" in text
    assert "-n " not in text
    kept = [
        one["with"]["path"] for job, one in github_steps() if job == "latency" and "upload" in one.get("uses", "")
    ]
    assert kept == ["reports/shard-latency"]
    assert gitlab_jobs()["latency"]["artifacts"]["paths"] == ["reports/shard-latency/"]


@pytest.mark.parametrize("file", [GITHUB, GITLAB], ids=lambda file: file.stem)
def test_files_of_the_repository_that_a_recipe_names_exist(file):
    named = set(re.findall(r"docs/ci/[\w.-]+|constraints\.txt", file.read_text(encoding="utf-8")))
    assert len(named) == 2
    assert [name for name in named if not (ROOT / name).is_file()] == []


# ---- shell ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "text"), scripts(), ids=[where for where, _ in scripts()])
def test_shell_parses(where, text):
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def stand_in(folder: Path, body: str) -> dict[str, str]:
    """An environment in which ``conformance`` writes down its arguments and then does ``body``."""
    command = folder / "bin" / "conformance"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/usr/bin/env bash\necho "$*" >> "{folder}/called"\n{body}\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{command.parent}:/usr/bin:/bin"}


def gate(folder: Path, *words: str, **more: str) -> tuple[int, list[str]]:
    done = subprocess.run(["bash", str(GATE), *words], cwd=folder, env=more, capture_output=True, check=False)
    called = folder / "called"
    return done.returncode, called.read_text().splitlines() if called.exists() else []


MERGES = 'case $1 in merge) mkdir -p "$2" ;; report) echo "# summary" ;; diff) exit {code} ;; esac'


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_gate_ends_as_the_comparison_does(tmp_path, code):
    known = stand_in(tmp_path, MERGES.format(code=code))
    ended, called = gate(tmp_path, "base.jsonl", "out", "a b", "c", **known)
    assert ended == code
    assert called == ["merge out a b c", "report out --baseline base.jsonl --markdown", "diff base.jsonl out"]
    assert (tmp_path / "out" / "summary.md").read_text() == "# summary\n"


def test_the_gate_writes_the_summary_of_the_job_where_there_is_one(tmp_path):
    known = stand_in(tmp_path, MERGES.format(code=1))
    ended, called = gate(tmp_path, "base.jsonl", "out", "a", GITHUB_STEP_SUMMARY=str(tmp_path / "summary"), **known)
    assert ended == 1
    report = "report out --baseline base.jsonl"
    assert called[1:] == [f"{report} --markdown", f"{report} --github", "diff base.jsonl out"]
    assert (tmp_path / "summary").read_text() == "# summary\n"


def test_the_gate_is_red_where_shards_do_not_merge(tmp_path):
    known = stand_in(tmp_path, 'if [ "$1" = merge ]; then exit 2; fi')
    assert gate(tmp_path, "base.jsonl", "out", "a", **known) == (2, ["merge out a"])
    assert gate(tmp_path / "bin", "base.jsonl", "out", **known)[0] == 2, "without shards"


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (1, 0), (2, 2), (5, 5)])
@pytest.mark.parametrize("where", ["github cells", "gitlab cells", "github latency", "gitlab latency"])
def test_a_shard_with_failing_cells_is_left_to_the_gate(tmp_path, where, code, ends):
    (text,) = (text for name, text in scripts() if name == where and "pytest" in text)
    command = tmp_path / "pytest"
    command.write_text(f"#!/usr/bin/env bash\nexit {code}\n")
    command.chmod(0o755)
    known = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SHARD": "1", "CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"}
    done = subprocess.run(["bash", "-e", "-c", text], env=known, check=False)
    assert done.returncode == ends


# ---- options -------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of pytest and of ``conformance`` in the recipes and the guide: its name and its options."""
    guide = (ROOT / "docs" / "gating.md").read_text(encoding="utf-8")
    texts = [text for _, text in scripts()] + re.findall(r"^    (.*)$", guide, re.M)
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            found = re.match(r"\s*(?:\S*/)?(pytest conformance|conformance \w+)(.*)", line)
            if found:
                yield found[1].removeprefix("conformance "), re.findall(r"(?<![\w-])--?[a-z][a-z-]*", found[2])


def helped(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command, "--help"], capture_output=True, text=True, cwd=ROOT)
    return done.stdout


def test_every_option_exists():
    found = list(commands())
    assert {name for name, _ in found} == {"pytest conformance", *COMMANDS}
    known = {*re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helped("pytest", "-p", "conformance.plugin"))}
    unknown = []
    for name, options in found:
        if name == "pytest conformance":
            unknown += [one for one in options if one not in known]
        else:
            have = {*re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helped("conformance.cli", name))}
            unknown += [f"{name} {one}" for one in options if one not in have]
    assert unknown == []
    assert sum(len(options) for _, options in found) > 10
