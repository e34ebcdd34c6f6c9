"""As few nodes as still fail: single ones first, then a range by bisection, then one after the other left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conformance.checks.reduce.model_trial import Trials
from conformance.explain.search import OutOfTime, least, part
from conformance.onnxgraph.cut import Cutter


def fewest(cutter: Cutter, trials: Trials) -> tuple[list[int], bool] | None:
    """The numbers of as few nodes as are known to fail, and whether the search came to its end; None where the whole
    model does not fail once it is cut, so that nothing can be taken away."""
    every = list(range(len(cutter.nodes)))
    best: list[int] = every

    def fails(chosen: Sequence[int]) -> bool:
        nonlocal best
        failed = bool(chosen) and trials.fails(cutter.of(chosen))
        if failed and len(chosen) < len(best):
            best = list(chosen)
        return failed

    try:
        # Each node has the reference's own inputs, so that one which fails is wrong by itself.
        single = next((number for number in every if trials.fails(cutter.of([number]))), None)
        if single is not None:
            return [single], True
        if not fails(every):
            return None
        return part(_range(every, fails), fails) or best, True
    except OutOfTime:
        return (best, False) if len(best) < len(every) else None


def _range(every: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """The shortest beginning that fails, from its latest start; where that is not monotone, what was met of it, or a
    window of few nodes."""
    end = least(1, len(every), lambda count: fails(every[:count]))
    head = every[:end] if fails(every[:end]) else every
    skipped = len(head) - least(1, len(head), lambda count: fails(head[len(head) - count :]))
    tail = head[skipped:] if fails(head[skipped:]) else head
    if len(tail) <= _FEW:
        return tail
    for width in (2, 4, _FEW):
        for start in range(len(tail) - width, -1, -max(width // 2, 1)):
            if fails(tail[start : start + width]):
                return tail[start : start + width]
    return tail


_FEW = 8
"""So many nodes are left to delta debugging at once."""
