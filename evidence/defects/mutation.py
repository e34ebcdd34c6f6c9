"""``python -m evidence.defects.mutation``: mutmut on the modules by which verdicts are made, with their own tests.

It changes one operator or value of a function at a time, and runs the tests that call the function in a fork. It
works in a copy of the repository, for a limited time, and lists the mutants that no test kills. mutmut is installed
apart from the environment of the tests: ``pip install --target DIR mutmut==3.8.1``, and ``--tool DIR`` names it.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import ROOT
from evidence.defects.copies import Copy, copy_of

OWN_TESTS = {
    "compare/*.py": (
        "test_compare", "test_noise", "test_vacuity", "test_indices", "test_detections", "test_blocks",
        "align/test_parting", "test_sequences", "test_output_names", "test_rounding",
    ),
    "results/records/settle.py": ("test_hosts", "test_planted_expectations", "test_record"),
    "diagnose/nodes/blame.py": ("test_blame", "test_planted_blame", "test_nodes", "test_witnesses"),
}  # fmt: skip
"""By files of the package: the tests that are about them, below ``tests/``."""
MINUTES = 180.0
COPIED = (
    "benchmarks", "evidence", "cases", "conftest.py", "docs", "reports", "README.md", "CHANGELOG.md",
    "constraints.txt",
)  # fmt: skip
"""What tests read besides the package."""
KILLED, SURVIVED, UNTESTED, SLOW = "killed", "survived", "not called by these tests", "out of time"
_BY_CODE = {0: SURVIVED, 5: UNTESTED, 33: UNTESTED, 24: SLOW, 36: SLOW, 152: SLOW, -24: SLOW, 255: SLOW}
"""What mutmut's exit codes of a mutant mean; all others killed it, and None was not tried."""


def configure(copy: Copy, tool: Path, patterns: Sequence[str], tests: Sequence[str]) -> None:
    """Writes mutmut's configuration into a copy, and makes mutmut known to its Python."""
    files = [f"    conformance/{pattern}" for pattern in patterns]
    selected = [f"    {test}" for test in tests]
    (copy.root / "setup.cfg").write_text(
        "\n".join(
            [
                "[mutmut]", "source_paths=", "    conformance", "only_mutate=", *files,
                "pytest_add_cli_args_test_selection=", *selected, "pytest_add_cli_args=", "    -p",
                "    no:cacheprovider", "also_copy=", *(f"    {name}" for name in COPIED), "",
            ]
        ),
        encoding="utf-8",
    )  # fmt: skip
    site = next(copy.python.parent.parent.glob("lib/python*/site-packages"))
    (site / "zz_tool.pth").write_text(f"import site; site.addsitedir({str(tool)!r})\n", encoding="utf-8")


def run_mutmut(copy: Copy, minutes: float, jobs: int) -> None:
    """Runs mutmut in the copy, for so many minutes at most; what it has found until then stays."""
    command = [str(copy.python), "-m", "mutmut", "run", "--max-children", str(jobs)]
    environment = {**os.environ, "PYTHONPATH": ""}
    said = copy.root.parent / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            command, cwd=copy.root, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            if process.wait(60 * minutes):
                print(said.read_text(encoding="utf-8").rpartition("\r")[2], flush=True)
        except subprocess.TimeoutExpired:
            print(f"ended after {minutes:g} minutes", flush=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def outcomes(copy: Copy) -> Iterator[tuple[str, str]]:
    """Each mutant by its name, and what became of it; those that were not tried are left out."""
    for meta in sorted((copy.root / "mutants").rglob("*.meta")):
        for name, code in json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"].items():
            if code is not None:
                yield name, _BY_CODE.get(code, KILLED)


def difference(copy: Copy, mutant: str) -> str:
    """What a mutant changes."""
    command = [str(copy.python), "-m", "mutmut", "show", mutant]
    shown = subprocess.run(command, cwd=copy.root, capture_output=True, text=True).stdout
    return "\n".join(line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evidence.defects.mutation", description=__doc__)
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="such as compare/matched_rows.py (default: all of its own)"
    )
    parser.add_argument("--tool", type=Path, required=True, metavar="DIR", help="where mutmut is installed")
    parser.add_argument("--tests", nargs="+", metavar="NAME", help="such as test_compare (default: their own)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="at most (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at a time (default: %(default)s)")
    given = parser.parse_args()
    patterns = given.files or list(OWN_TESTS)
    own = [names for known, names in OWN_TESTS.items() if any(_overlap(known, pattern) for pattern in patterns)]
    names = given.tests or dict.fromkeys(name for names in own for name in names)
    tests = [f"tests/{name}.py" for name in names]
    missing = [test for test in tests if not (ROOT / test).is_file()]
    if missing or not tests:
        sys.exit(f"there is no {', '.join(missing) or 'test'} of {', '.join(patterns)}; correct OWN_TESTS")
    with copy_of(ROOT) as copy:
        configure(copy, given.tool.resolve(), patterns, tests)
        run_mutmut(copy, given.minutes, given.jobs)
        known = dict(outcomes(copy))
        for name, outcome in known.items():
            if outcome != KILLED:
                print(f"{outcome}: {name}\n{difference(copy, name)}\n", flush=True)
        print(", ".join(f"{count} {outcome}" for outcome, count in Counter(known.values()).most_common()))


def _overlap(known: str, pattern: str) -> bool:
    return fnmatch.fnmatch(pattern, known) or fnmatch.fnmatch(known, pattern)


if __name__ == "__main__":
    main()
