"""At which sizes a model runs whose file leaves dims open: tried, since nothing in the file says it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from conformance.case.draw.draw import Draw, Maker
from conformance.case.draw.shapes import ALONE
from conformance.case.files.declaration import Case
from conformance.case.files.dims import Dims, Range
from conformance.case.files.inputs import Input
from conformance.case.files.limits import SIZE
from conformance.case.files.onnx_interface import SIZES
from conformance.case.files.python import Folder
from conformance.cells.coupled_dims import Narrow, SizeTrials, narrow, widened
from conformance.models.reference.float64_model import load_mapped, open_unoptimized
from conformance.process.errors import Stopped, attempt, or_else, stopping
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

TOGETHER = "where one dim has to fit others, say how, as in --dim 'total=past + seq'"

Runs = Callable[[Mapping[str, int]], bool]


def working_sizes(case: Case, said: Collection[str]) -> tuple[dict[str, str], list[Narrow]]:
    """Return a range for each dim of an ``onnx`` case that nobody has ``said``, within which the model runs, node by
    node and without an optimizer; that of a case which says none where nobody here runs it. Return too which dims the
    file leaves open that run at no size above one.

    Raises Stopped for a model that does not load, or runs at no size that is tried.
    """
    names = [name for name in case.says.dims if name not in said]
    with Folder.of(case.folder).active() as folder:
        maker, file = Maker(case, folder.resolve), case.folder / str(case.says.onnx)

        with contextlib.ExitStack() as stack:
            with stopping("load", "case", lambda error: f"{file.name} does not load: {sentence(error)}"):
                session = _session_of(file, stack)
            if session is None:
                return dict.fromkeys(names, SIZES), []
            given = {name: case.says.dims[name] for name in said if name in case.says.dims}
            free = Dims.build({**dict.fromkeys(names, Range.parse(f"0..{SIZE}")), **given}, case.says.where)
            deadline = time.monotonic() + SECONDS

            def trials(of: Session) -> SizeTrials:
                return SizeTrials(free, lambda sizes: of.run(maker(Draw(sizes, "plain", 0))), deadline)

            runs, sides = trials(session), _sides(case)
            known = {name: case.says.trace[name] for name in names if name in case.says.trace}
            tried = [{name: SIDE if name in sides else size for name in names} for size in FIRST[:3]] if sides else []
            tried = [known] if len(known) == len(names) else tried
            tried += (dict.fromkeys(names, size) for size in FIRST)
            middle = next((sizes for sizes in tried if runs(sizes)), None)
            if middle is None:
                if isinstance(session, ReferenceSession):  # which may lack what others have
                    return dict.fromkeys(names, SIZES), []
                text = f"{file.name} runs at no size of {', '.join(case.says.dims)} that was tried: {runs.last}"
                text += f"; {TOGETHER}" if len(names) > 1 else ""
                raise Stopped("run", "NoSize", text, "case")
            found = ranges(names, runs, deadline, middle)
            free_names = [name for name in names if name not in _of_given(case)]
            stuck = [name for name in free_names if runs.why_not({**middle, name: middle[name] + 1}) is not None]
            found = widened(stuck, _axes(case), found, runs, middle)
            sure = not isinstance(session, ReferenceSession) and all(map(_says_no_size, case.says.inputs.values()))

            def evaluated() -> SizeTrials | None:
                return or_else(None, lambda: trials(_evaluator_of(file))) if sure else None

            return found, narrow(stuck, found, runs, middle, evaluated)


def _says_no_size(declared: Input) -> bool:
    """Return whether the values of an input can hardly be a size that another input has to have: whole numbers that
    nobody gave, of a tensor with an open dim."""
    values = declared.values
    drawn = values is None or values.by_graph is not None
    return drawn and (declared.type.is_float or declared.type.dtype == "bool" or bool(declared.type.names))


def _of_given(case: Case) -> set[str]:
    """Return the dims of inputs whose values, one by one, somebody gives: other sizes would need other values."""
    given = (each for each in case.says.inputs.values() if each.values and len(each.values.exactly or ()) > 1)
    return {name for each in given for name in each.type.names}


def _axes(case: Case) -> dict[str, int]:
    """Return the axis at which each dim stands first."""
    axes: dict[str, int] = {}
    for declared in case.says.inputs.values():
        for axis, size in enumerate(declared.type.shape):
            axes.setdefault(str(size), axis)
    return axes


def _session_of(file: Path, stack: contextlib.ExitStack) -> Session | None:
    """Return what runs the model: ONNX Runtime, or ONNX's evaluator where that does not support it; None where
    neither does, of which the cells say why."""
    opened = attempt(lambda: stack.enter_context(open_unoptimized(file)))
    if not isinstance(opened, Exception):
        return opened
    if refusal("onnxruntime", opened) is None:
        raise opened
    return or_else(None, lambda: _evaluator_of(file))


def _evaluator_of(file: Path) -> ReferenceSession:
    found = load_mapped(file)
    return ReferenceSession(found.model, found.weights)


def _sides(case: Case) -> set[str]:
    """The dims that are sides of an image, as far as types tell: the last two of four, of floats."""
    types = [declared.type for declared in case.says.inputs.values()]
    images = (kind.shape[2:] for kind in types if kind.is_float and len(kind.shape) == 4)
    return {str(size) for shape in images for size in shape}


def ranges(names: list[str], runs: Runs, deadline: float, middle: Mapping[str, int]) -> dict[str, str]:
    """Return a range of sizes for each dim, around those of ``middle``, at which it runs. Of many dims those that run
    in every mixture of two sizes are tried together."""
    lows, highs = dict(middle), dict(middle)
    if len(names) <= ALONE:
        groups = [[name] for name in names]
    else:
        groups = [[name for name in names if middle[name] == base] for base in dict.fromkeys(map(middle.get, names))]
    for group in groups:
        base = middle[group[0]]

        def at(size: int, some: Iterable[str] = tuple(group)) -> bool:
            return runs({**middle, **dict.fromkeys(some, size)})

        if time.monotonic() > deadline:
            break
        if not (at(base + 1) and all(at(base + 1, some) for some in _mixtures(group))):
            halves = group[: len(group) // 2], group[len(group) // 2 :]
            groups += halves if len(group) > 1 else ()
            continue  # several dims are the same, or the size is a multiple of something
        highs |= dict.fromkeys(group, base + BEYOND if at(base + BEYOND) else base + 1)
        smaller = (1, 2, 3, base // 2) if base < SIDE else (base // 2,)
        lows |= dict.fromkeys(group, next((size for size in smaller if size < base and at(size)), base))
    if not runs(lows):
        lows = dict(middle)
    if not runs(highs):
        highs = dict(middle)
    return {name: f"{lows[name]}..{highs[name]}" if lows[name] < highs[name] else str(middle[name]) for name in names}


def _mixtures(group: list[str]) -> Iterator[list[str]]:
    """Yield parts of a group, so that of any two of its names some part has the one and not the other."""
    for place in range((len(group) - 1).bit_length()):
        for digit in (0, 1):
            yield [name for number, name in enumerate(group) if number >> place & 1 == digit]
