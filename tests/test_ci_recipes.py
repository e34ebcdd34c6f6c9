"""The CI files in the docs: valid YAML, jobs that exist, pinned actions, sound shell, options that exist."""

import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.kit.runs import run_command, run_pytest

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


def test_github_steps_do_one_thing_each_with_a_pinned_action():
    """What GitHub fills in is no part of a script: the name of a branch, say, would be run; values go through env."""
    used = set()
    for job, step in github_steps():
        assert "${{" not in step.get("run", ""), step["run"]
        assert ("run" in step) != ("uses" in step), (job, step)
        assert set(step) <= {"name", "run", "uses", "with", "if", "env"}, (job, step)
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]), step["uses"]
            used.add(step["uses"])
    assert len({one.partition("@")[0] for one in used}) == len(used), "one version of each action"


def test_budgets_of_time_are_measured_alone_and_joined_with_the_shards():
    """With -n they are skipped, so that the shards cannot have them."""
    for where in ("github latency", "gitlab latency"):
        (text,) = (text for name, text in scripts() if name == where and "pytest" in text)
        assert "-m latency --report reports/shard-latency" in text
        assert "-n " not in text
    uploads = [one for job, one in github_steps() if job == "latency" and "upload" in one.get("uses", "")]
    assert [one["with"]["path"] for one in uploads] == ["reports/shard-latency"]
    assert gitlab_jobs()["latency"]["artifacts"]["paths"] == ["reports/shard-latency/"]


def test_shell_parses():
    for where, text in scripts():
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), where


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


def test_the_gate_is_red_where_shards_do_not_merge(tmp_path):
    known = stand_in(tmp_path, 'if [ "$1" = merge ]; then exit 2; fi')
    assert gate(tmp_path, "base.jsonl", "out", "a", **known) == (2, ["merge out a"])
    assert gate(tmp_path / "bin", "base.jsonl", "out", **known)[0] == 2, "without shards"


@pytest.mark.parametrize("where", ["github cells", "gitlab cells", "github latency", "gitlab latency"])
def test_a_shard_with_failing_cells_is_left_to_the_gate(tmp_path, where):
    (text,) = (text for name, text in scripts() if name == where and "pytest" in text)
    command = tmp_path / "pytest"
    command.write_text("#!/usr/bin/env bash\nexit $CODE\n")
    command.chmod(0o755)
    known = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SHARD": "1", "CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"}
    for code, ends in ((0, 0), (1, 0), (2, 2), (5, 5)):
        done = subprocess.run(["bash", "-e", "-c", text], env={**known, "CODE": str(code)}, check=False)
        assert done.returncode == ends, code


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of pytest and of ``conformance`` in the recipes and the guide: its name and its options."""
    guide = (ROOT / "docs" / "gating.md").read_text(encoding="utf-8")
    texts = [text for _, text in scripts()] + re.findall(r"^    (.*)$", guide, re.M)
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            found = re.match(r"\s*(?:\S*/)?(pytest conformance|conformance \w+)(.*)", line)
            if found:
                name = found[1].removeprefix("conformance ").replace("run", "pytest conformance")
                yield name, re.findall(r"(?<![\w-])--?[a-z][a-z-]*", found[2])


def test_every_option_exists(tmp_path):
    found = list(commands())
    assert {name for name, _ in found} == {"pytest conformance", *COMMANDS}
    texts = {name: run_command(tmp_path, name, "--help").text for name in COMMANDS}
    of_pytest = run_pytest(tmp_path, "--help").text
    texts["pytest conformance"] = of_pytest + of_pytest.replace("--conformance-", "--")
    have = {name: {*re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text)} for name, text in texts.items()}
    assert [f"{name} {option}" for name, options in found for option in options if option not in have[name]] == []
    assert sum(len(options) for _, options in found) > 10
