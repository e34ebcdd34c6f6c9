#!/usr/bin/env bash
# Joins the shards of a run and holds the run against the baseline.
#   bash docs/ci/gate.sh reports/baseline.jsonl reports/merged SHARD...
# Exit code: 0 where nothing got worse, 1 where something did, 2 where a shard, the baseline or the call is broken.
set -euo pipefail

if [ "$#" -lt 3 ]; then
    echo "usage: gate.sh BASELINE OUT SHARD..." >&2
    exit 2
fi
baseline=$1 out=$2
shift 2

# Refuses shards that are missing, did not finish, disagree or have other versions.
conformance merge "$out" "$@"

# The summary and the annotations come first: they are wanted most where the gate is red.
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    conformance report "$out" --baseline "$baseline" --markdown >> "$GITHUB_STEP_SUMMARY"
    conformance report "$out" --baseline "$baseline" --github
else
    conformance report "$out" --baseline "$baseline" --markdown > "$out/summary.md"
fi

conformance diff "$baseline" "$out"
