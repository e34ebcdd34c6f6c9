"""Baselines that git merges, or has to leave to the reader."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conformance.baseline import accept, case_of, read_baseline
from tests.baseline.support import FAILED, cells, record, run, written


def merged_by_git(folder: Path, base: bytes, ours: bytes, theirs: bytes, *how: str) -> tuple[int, Path]:
    files = []
    for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
        files.append(folder / f"{name}.jsonl")
        files[-1].write_bytes(content)
    done = subprocess.run(["git", "merge-file", *how, *map(str, files)], check=False)
    return done.returncode, files[0]


@pytest.mark.parametrize("pair", [(0, 1), (0, 3)])
def test_branches_that_accept_different_cases_merge(tmp_path, pair):
    file = written(tmp_path, *cells())
    base, results = file.read_bytes(), []
    after = run(*({**one, **FAILED} for one in cells()))
    for case in pair:
        file.write_bytes(base)
        accept(file, after, [f"*[case{case}-*"], because=f"of branch {case}")
        results.append(file.read_bytes())
    code, merged = merged_by_git(tmp_path, base, *results)
    assert code == 0
    accepted = [one["id"] for one in read_baseline(merged)[1] if one["accepted"]]
    assert {case_of(name) for name in accepted} == {f"case{case}" for case in pair}
    assert len(accepted) == 4


def test_new_cases_side_by_side_merge_as_a_union(tmp_path):
    """What the guide says of merge=union."""
    file = written(tmp_path, *cells())
    base, results = file.read_bytes(), []
    for name in ("export[case2a-dynamo-op20]", "export[case2b-dynamo-op20]"):
        file.write_bytes(base)
        accept(file, run(*cells(), record(name)), [name])
        results.append(file.read_bytes())
    assert merged_by_git(tmp_path, base, *results)[0] == 1
    code, merged = merged_by_git(tmp_path, base, *results, "--union")
    assert code == 0
    assert {"case2a", "case2b"} <= {one["case"] for one in read_baseline(merged)[1]}
