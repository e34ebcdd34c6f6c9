"""At which sizes a model runs whose file leaves dims open: tried, since nothing in the file says it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from conformance.case.declaration import Case
from conformance.case.onnx_interface import SIZES
from conformance.case.python import Folder
from conformance.draw.draw import Draw, Maker
from conformance.errors import Stopped, attempt, or_else, stopping
from conformance.export.float64_model import load, open_unoptimized
from conformance.runtimes import Session
from conformance.runtimes.onnxreference import ReferenceSession
from conformance.runtimes.unsupported import refusal, sentence

FIRST = (4, 3, 8, 16, 32, 64, 128, 224, 256, 512, 2, 1)
"""The sizes that are tried for all dims at once, the first that works being the one to go out from."""
SIDE = 64
"""The side of an image that is tried first: of a smaller one a network leaves hardly anything."""
BEYOND = 4
"""How much larger than that a dim is tried."""
SECONDS = 60.0

Runs = Callable[[Mapping[str, int]], bool]


def working_sizes(case: Case) -> dict[str, str]:
    """A range for each dim of an ``onnx`` case, within which the model runs, node by node and without an optimizer;
    that of a case which says none where nobody here runs it.

    Raises Stopped for a model that does not load, or runs at no size that is tried.
    """
    said: list[str] = []
    with Folder.of(case.folder).active() as folder:
        maker, file = Maker(case, folder.resolve), case.folder / str(case.says.onnx)

        with contextlib.ExitStack() as stack:
            with stopping("load", "case", lambda error: f"{file.name} does not load: {sentence(error)}"):
                session = _session_of(file, stack)
            if session is None:
                return dict.fromkeys(case.says.dims, SIZES)

            def runs(sizes: Mapping[str, int]) -> bool:
                outputs = attempt(lambda: session.run(maker(Draw(dict(sizes), "plain", 0))))
                if isinstance(outputs, Exception):
                    said.append(sentence(outputs))
                return not isinstance(outputs, Exception)

            names, sides = list(case.says.dims), _sides(case)
            tried = ({name: SIDE if name in sides else size for name in names} for size in FIRST[:3])
            recorded = {name: case.says.trace[name] for name in names if name in case.says.trace}
            known = [recorded] if len(recorded) == len(names) else [] if not sides else tried
            middle = next((sizes for sizes in known if runs(sizes)), None)
            try:
                return ranges(names, runs, time.monotonic() + SECONDS, middle)
            except LookupError:
                if isinstance(session, ReferenceSession):  # which may lack what others have
                    return dict.fromkeys(case.says.dims, SIZES)
                text = f"{file.name} runs at no size of {', '.join(case.says.dims)} that was tried: {said[-1]}"
                raise Stopped("run", "NoSize", text, "case") from None


def _session_of(file: Path, stack: contextlib.ExitStack) -> Session | None:
    """Return what runs the model: ONNX Runtime, or ONNX's evaluator where that does not support it; None where
    neither does, of which the cells say why."""
    opened = attempt(lambda: stack.enter_context(open_unoptimized(file)))
    if not isinstance(opened, Exception):
        return opened
    if refusal("onnxruntime", opened) is None:
        raise opened
    return or_else(None, lambda: ReferenceSession(load(file)))


def _sides(case: Case) -> set[str]:
    """The dims that are sides of an image, as far as types tell: the last two of four, of floats."""
    types = [declared.type for declared in case.says.inputs.values()]
    images = (kind.shape[2:] for kind in types if kind.is_float and len(kind.shape) == 4)
    return {str(size) for shape in images for size in shape}


def ranges(names: list[str], runs: Runs, deadline: float, middle: Mapping[str, int] | None = None) -> dict[str, str]:
    """A range of sizes for each dim, around those of ``middle``, at which it runs; raises LookupError where there are
    none and no size of ``FIRST`` works for all dims at once."""
    if middle is None:
        first = next((size for size in FIRST if runs(dict.fromkeys(names, size))), None)
        if first is None:
            raise LookupError
        middle = dict.fromkeys(names, first)
    lows, highs = dict(middle), dict(middle)
    for name in names:
        base = middle[name]
        if time.monotonic() > deadline or not runs({**middle, name: base + 1}):
            continue  # several dims are the same, or the size is a multiple of something
        highs[name] = base + BEYOND if runs({**middle, name: base + BEYOND}) else base + 1
        lows[name] = next(
            (
                size
                for size in ((1, 2, 3, base // 2) if base < SIDE else (base // 2,))
                if size < base and runs({**middle, name: size})
            ),
            base,
        )
    if not runs(lows):
        lows = dict(middle)
    if not runs(highs):
        highs = dict(middle)
    return {name: f"{lows[name]}..{highs[name]}" if lows[name] < highs[name] else str(middle[name]) for name in names}
