"""``conformance ci``: all that a job of CI does with cases or a model, which ``action.yml`` and the template call."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.front.commands import diff, merge
from conformance.front.commands.run import start
from conformance.process.errors import UserError
from conformance.results.records.run_file import JUNIT, PAGE, read_run
from conformance.results.records.sanitize import one_line, tell

if TYPE_CHECKING:
    from conformance.results.baseline.change import Change

_RAN = (0, 1, 5)
"""Exit codes of a run that left records, if it had any cells; all others are about options, or a run broken off."""
FAILING = Path(".conformance/failing")
"""The folder of failing examples, with scripts and texts to report; ``action.yml`` and the template keep it."""
_MODEL = "fp16"
"""The precision in which a model without a case is run besides its own."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cases", default="", metavar="TEXT", help="case files or folders, as a shell reads them (default: cases/)"
    )
    parser.add_argument(
        "--model", default="", metavar="FILE", help="an ONNX file in place of cases, in fp32 and fp16"
    )
    parser.add_argument(
        "--shards",
        default="",
        metavar="TEXT",
        help="runs of other jobs to join, as in 'shards/*/reports/latest', for cases",
    )
    parser.add_argument(
        "--baseline", default="", metavar="FILE",
        help="also fail on what got worse than in this file; for a pull request it is taken from the base branch",
    )  # fmt: skip
    parser.add_argument(
        "--options", default="", metavar="TEXT", help="options of conformance run, as a shell reads them"
    )
    parser.add_argument(
        "--report", type=Path, default=Path("reports/latest"), metavar="DIR",
        help="where the run, its page and its JUnit file go (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="what tells its comment from those of other jobs")
    parser.add_argument(
        "--comment", choices=("true", "false"), default="true",
        help="whether to comment on the pull request (default: %(default)s)",
    )  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """The exit code of the run, whatever becomes of its summary and comment. An empty text is an option left out."""
    if sum(map(bool, (given.cases, given.model, given.shards))) > 1:
        raise UserError("give one of --cases, --model and --shards")
    with tempfile.TemporaryDirectory() as folder:
        base = _find_baseline(Path(given.baseline), Path(folder) / "baseline.jsonl") if given.baseline else None
        ended = _join(given, base) if given.shards else _run_cases(given, base)
        if ended in _RAN and (given.report / "records.jsonl").is_file():
            try:
                _show(given, base)
            except (UserError, OSError) as error:
                tell(f"conformance ci: {error}")
    return ended


def _run_cases(given: argparse.Namespace, base: Path | None) -> int:
    compared = ["--baseline", str(base)] if base is not None else []
    report = ["--report", str(given.report), "--junit-xml", str(given.report / JUNIT)]
    with _case_of(Path(given.model)) if given.model else contextlib.nullcontext() as case:
        cases = _split(given.cases) if case is None else [case]
        return start([*cases, *report, *compared, *_split(given.options)])


def _join(given: argparse.Namespace, base: Path | None) -> int:
    """Return 0, or 1 where something got worse than in the baseline; without one, where a cell is red."""
    runs = [str(run) for pattern in _split(given.shards) for run in sorted(Path().glob(pattern))]
    if not runs:
        raise UserError(f"--shards {given.shards}: there is no such run")
    _call(merge, str(given.report), *runs)
    if base is not None:
        return _call(diff, str(base), str(given.report))
    from conformance.results.baseline.baseline_file import load
    from conformance.results.report.record_rows import failures

    return 1 if failures(load(given.report)[1]) else 0


def _call(command: Any, *words: str) -> int:
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    ended: int = command.run(parser.parse_args(words))
    return ended


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text}: {error}") from None


@contextlib.contextmanager
def _case_of(model: Path) -> Iterator[str]:
    """Write a case file beside a model, where case files name their models, and delete it at the end."""
    if not model.is_file():
        raise UserError(f"--model {model}: there is no such file")
    file = model.with_name(f"{model.name}.yaml")
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in model.stem.lower())
    case = {"about": "a model without a case", "onnx": model.name, "precisions": {_MODEL: {}}, "dims": {}}
    case["dims"] = _find_sizes(model, case)
    try:
        with file.open("x", encoding="utf-8") as stream:
            json.dump({f"model_{name}": case}, stream)  # YAML is a superset of JSON
    except FileExistsError:
        raise UserError(f"--model {model}: {file} is there, so run it: --cases {file}") from None
    try:
        yield str(file)
    finally:
        file.unlink(missing_ok=True)


def _find_sizes(model: Path, said: dict[str, Any]) -> dict[str, str]:
    """Return the sizes at which a model runs, as ``conformance check`` finds them; none where it runs at no size,
    which its cells then show."""
    from conformance.cells.check_models import CheckedModel, Model
    from conformance.front.commands.check import case_with_sizes
    from conformance.process.disk.model_files import distinct_names
    from conformance.process.worker.warm import new_worker

    checked = CheckedModel(Model(model, *distinct_names([model])))
    try:
        with new_worker() as worker:
            case_with_sizes(checked, said, worker, tell)
    except UserError as error:
        tell(f"no sizes were found: {error}")
        return {}
    for dim in checked.narrow:
        tell(dim)
    return checked.dims


def _find_baseline(baseline: Path, copy: Path) -> Path | None:
    """Return the baseline as the base branch of a pull request has it, which the request itself cannot change, or
    else the file that is there; None where there is none. Raises UserError where the branch cannot be read."""
    branch = os.environ.get("GITHUB_BASE_REF") or os.environ.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    if not branch:
        if baseline.is_file():
            return baseline
        _tell_lack(f"{baseline} is not there yet")
        return None
    _git("fetch", "--quiet", "--depth=1", "origin", f"refs/heads/{branch}")
    place = f"FETCH_HEAD:./{Path(os.path.relpath(baseline)).as_posix()}"
    if subprocess.run(["git", "cat-file", "-e", place], capture_output=True, check=False).returncode:
        _tell_lack(f"{baseline} is not on the branch {branch} yet")
        return None
    copy.write_bytes(_git("show", place))
    return copy


def _tell_lack(what: str) -> None:
    from conformance.results.report.markdown import code

    text = f"{what}: this run is compared with nothing"
    tell(text)
    _add_to_summary(f"{code(text, 500)}\n\n")


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], capture_output=True, check=False)
    if done.returncode:
        raise UserError(f"git {words[0]}: {one_line(done.stderr.decode('utf-8', 'replace'), 500)}")
    return done.stdout


def _show(given: argparse.Namespace, base: Path | None) -> None:
    from conformance.front.commands.report import changes_since
    from conformance.results.report.command import report
    from conformance.results.report.markdown import summary

    changes = changes_since(given.report, base)
    on_github = bool(os.environ.get("GITHUB_ACTIONS"))
    report([given.report], html=given.report / PAGE, github=on_github, changes=changes)
    _add_to_summary(summary(*read_run(given.report), changes))
    if _page() and FAILING.is_dir():  # the log and the summary name folders that are gone with the job
        where = f"{FAILING} is kept with the artifacts, as is {given.report}: {_page()}"
        tell(where)
        _add_to_summary(f"{where}\n")
    if given.comment == "true" and any(map(os.environ.get, ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_IID"))):
        _comment(given, base, changes)


def _comment(given: argparse.Namespace, base: Path | None, changes: Sequence[Change]) -> None:
    """Comment on the pull request, or tell why there is no comment, which the summary says too."""
    from conformance.results.baseline.baseline_file import load
    from conformance.results.report import code_host
    from conformance.results.report.comment import comment

    name = given.name or os.environ.get("GITHUB_JOB") or os.environ.get("CI_JOB_NAME") or "conformance"
    earlier = None if base is None else load(base)[1]
    try:
        host = code_host.thread(os.environ)
        code_host.write(host, comment(name, load(given.report), earlier, changes, _page()))
    except code_host.CommentUnwritten as why:
        tell(why)
        _add_to_summary(f"{why}\n")


def _add_to_summary(text: str) -> None:
    """Add to the page of a job of GitHub Actions; others have none."""
    if os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
            summary.write(text)


def _page() -> str:
    """Return where the job's page can be had."""
    known = os.environ
    if known.get("GITHUB_RUN_ID"):
        return "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}#artifacts".format_map(known)
    return f"{known['CI_JOB_URL']}/artifacts/browse" if known.get("CI_JOB_URL") else ""
