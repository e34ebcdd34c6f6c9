"""A script and a text about a small model, for whoever mends ONNX Runtime: ``repro.py`` and ``issue.md``.

The script needs onnx, onnxruntime and NumPy. It ends with 1 while the defect lives and with 0 once it is gone; any
other end shows nothing. Names and texts of the case appear in it as Python literals only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.compare.excuses import largest_of
from conformance.diagnose.smallest.model_trial import ModelFailure
from conformance.process.arrays import Array
from conformance.process.errors import display_path
from conformance.results.records.environment import environment, versions
from conformance.results.records.sanitize import fenced, one_line
from conformance.runtimes import registry
from conformance.runtimes.flattening import old
from conformance.runtimes.onnxgraph.cut import Cut

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_LINES = 39
"""Lines of the script; a model that takes more is read from the file beside it."""
MOST_VALUES = 64
"""Values of an array that are written out."""
SECONDS = 60.0
"""How long the script may take."""
_SHORT = 4
"""Values of an array that are written out whatever they are."""
LIVES = "the defect lives"

Versions = Mapping[str, str | None]
"""Of packages, of Python, and the platform."""


def script(cut: Cut, failure: ModelFailure, expected: Sequence[Array]) -> str | None:
    """The text of the script; ``expected`` is right for the model. None where it cannot be written in few lines, with
    the model beside it neither."""
    for model in (_inline(cut), _inline(cut, packed=True), _beside(cut)):
        if model is None:
            continue
        right = _right(failure, cut.model, expected)
        if right is None:
            return None
        lines = [*_imports([*model, *right]), *model, *_run(failure), *right, *_end(failure, expected)]
        if len(lines) <= MOST_LINES and all(len(line) <= 400 for line in lines):
            return "\n".join(lines) + "\n"
    return None


def _imports(lines: Sequence[str]) -> list[str]:
    text = "\n".join(lines)
    names = [name for name in ("helper", "numpy_helper") if re.search(rf"\b{name}\.", text)]
    packages = ["import numpy as np", *(["import onnx"] if "onnx." in text else []), "import onnxruntime as ort"]
    local = [f"from onnx import {', '.join(names)}"] if names else []
    evaluator = ["from onnx.reference import ReferenceEvaluator"] if "ReferenceEvaluator" in text else []
    path = ["from pathlib import Path"] if "Path(" in text else []
    return ["import sys", *path, *packages, *local, *evaluator, ""]


def literal(value: Array) -> str | None:
    """An array as Python; None where it is too large to be read."""
    if value.dtype.kind not in "fiub":
        return None
    if value.size > _SHORT and bool((value == value.flat[0]).all()):
        return f"np.full({value.shape}, {_number(value.flat[0])}, {str(value.dtype)!r})"
    if value.size > _SHORT and np.array_equal(value, np.arange(value.size).reshape(value.shape)):
        return f"np.arange({value.size}, dtype={str(value.dtype)!r}).reshape({value.shape})"
    if value.size > MOST_VALUES:
        return None
    text = re.sub(r"\b(nan|inf)\b", r"np.\1", repr(value.tolist()))
    shaped = f".reshape({value.shape})" if not value.size else ""
    return f"np.array({text}, {str(value.dtype)!r}){shaped}"


def _number(value: Any) -> str:
    return re.sub(r"\b(nan|inf)\b", r"np.\1", repr(value.item()))


def _inline(cut: Cut, *, packed: bool = False) -> list[str] | None:
    """The lines that make ``model`` and ``feeds``, of nodes as many on a line as fit where they are ``packed``."""
    graph = cut.model.graph
    nodes = [_node(node) for node in graph.node]
    feeds = {name: literal(value) for name, value in cut.feeds.items()}
    known = {name: literal(value) for name, value in cut.constants.items()}
    if cut.model.functions or None in [*nodes, *feeds.values(), *known.values()]:
        return None
    inputs = [f"helper.make_tensor_value_info({value.name!r}, {value.type.tensor_type.elem_type}, "
              f"{list(cut.feeds[value.name].shape)})" for value in graph.input]  # fmt: skip
    outputs = [
        f"helper.make_tensor_value_info({value.name!r}, {value.type.tensor_type.elem_type}, "
        f"{[None] * len(value.type.tensor_type.shape.dim)})"
        for value in graph.output
    ]
    tensors = _packed([f"numpy_helper.from_array({value}, {name!r})," for name, value in known.items()])
    imports = ", ".join(f"helper.make_opsetid({entry.domain!r}, {entry.version})" for entry in cut.model.opset_import)
    made = [f"{node}," for node in nodes]
    return [
        "nodes = [", *(_packed(made) if packed else [f"    {one}" for one in made]), "]",
        f"inputs = [{', '.join(inputs)}]", f"outputs = [{', '.join(outputs)}]",
        *(["constants = [", *tensors, "]"] if tensors else ["constants = []"]),
        "graph = helper.make_graph(nodes, 'smallest', inputs, outputs, constants)",
        f"model = helper.make_model(graph, opset_imports=[{imports}], ir_version={cut.model.ir_version})",
        f"feeds = {{{', '.join(f'{name!r}: {value}' for name, value in feeds.items())}}}",
    ]  # fmt: skip


def _packed(items: Sequence[str]) -> list[str]:
    """The items on as few lines as they fit on."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) < _WIDTH:
            lines[-1] += f" {item}"
        else:
            lines.append(f"    {item}")
    return lines


_WIDTH = 118


def _node(node: Any) -> str | None:
    from onnx import helper

    given = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if not isinstance(value, (int, float, bytes, list)) and not hasattr(value, "__iter__"):
            return None
        plain = list(value) if not isinstance(value, (int, float, bytes)) else value
        if isinstance(plain, list) and not all(isinstance(item, (int, float, bytes)) for item in plain):
            return None
        given[attribute.name] = plain
    domain = f", domain={node.domain!r}" if node.domain else ""
    more = "".join(f", {name}={value!r}" for name, value in given.items() if name.isidentifier())
    return f"helper.make_node({node.op_type!r}, {list(node.input)}, {list(node.output)}{domain}{more})"


def _beside(cut: Cut) -> list[str] | None:
    """The lines that read ``model`` and ``feeds`` from the bundle that the script lies in."""
    names = list(cut.feeds)
    return [
        "here = next(Path(__file__).parent.glob('cells/*/model.onnx')).parent",
        "model = onnx.load(here / 'model.onnx')",
        "data = here / 'test_data_set_0'",
        f"files = [onnx.load_tensor(data / f'input_{{n}}.pb') for n in range({len(names)})]",
        f"feeds = dict(zip({names}, map(numpy_helper.to_array, files), strict=True))",
    ]


def _run(failure: ModelFailure) -> list[str]:
    config = [
        f"    options.add_session_config_entry({key!r}, {value!r})" for key, value in (failure.config or {}).items()
    ]
    return [
        "",
        "def run(level):",
        "    options = ort.SessionOptions()",
        "    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)",
        *config,
        "    session = ort.InferenceSession(model.SerializeToString(), options, ['CPUExecutionProvider'])",
        "    return session.run(None, feeds)",
        "",
    ]


def _right(failure: ModelFailure, model: ModelProto, expected: Sequence[Array]) -> list[str] | None:
    if failure.right == "onnxruntime-unoptimized":
        return ["expected = run('ORT_DISABLE_ALL')"]
    if failure.right == "onnx-reference" and not old(model):  # of which it does not know the rules by itself
        return ["expected = ReferenceEvaluator(model).run(None, feeds)"]
    arrays = [literal(array) for array in expected]
    return None if None in arrays else [f"expected = [{', '.join(map(str, arrays))}]"]


def _end(failure: ModelFailure, expected: Sequence[Array]) -> list[str]:
    return ending(failure.kind, [failure.limit * largest_of(array) for array in expected], "run('ORT_ENABLE_ALL')")


def ending(kind: str, atol: Sequence[float], run: str) -> list[str]:
    """The end of a script: what ``run`` gives is held against ``expected``, or what it raises is shown."""
    if kind.startswith("stops"):
        return [
            "try:", f"    {run}", "except Exception as error:", f"    print('{LIVES}:', error)",
            "    sys.exit(1)", "print('it runs')",
        ]  # fmt: skip
    return [
        f"actual = {run}",
        f"for got, wanted, atol in zip(actual, expected, {[float(f'{one:.2g}') for one in atol]}, strict=True):",
        "    same = got.dtype == wanted.dtype and got.shape == wanted.shape",
        "    if not same or not np.allclose(got, wanted, 0, atol, equal_nan=True):",
        f"        print('{LIVES}: expected', expected, 'actual', actual)",
        "        sys.exit(1)",
        "print('the outputs are right')",
    ]


def shows(file: Path, seconds: float = SECONDS) -> tuple[bool, str]:
    """Return whether the script, in a process of its own, ends within so many seconds as the defect has it; and what
    it said."""
    try:
        done = subprocess.run(
            [sys.executable, str(file.absolute())], cwd=file.parent, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"it took longer than {seconds:g} s"
    except (OSError, subprocess.SubprocessError) as error:
        return False, str(error)
    return done.returncode == 1 and LIVES in done.stdout, done.stdout.strip() or done.stderr.strip()[-400:]


def leave_script(
    folder: Path, text: str, packages: Sequence[str], issue: Callable[[str, Versions], str], seconds: float = SECONDS
) -> tuple[dict[str, str], str]:
    """Write a script, run it, and keep it where it shows the defect, with what ``issue`` makes of what it said and of
    the versions of ``packages``. Return where both are, nothing where they are not, and what the script said."""
    file = folder / "repro.py"
    file.write_text(text, encoding="utf-8")
    lives, said = shows(file, seconds)
    if not lives:
        file.unlink()
        return {}, said
    about = environment([])
    told = {name: versions().get(name) for name in packages}
    told |= {"Python": about["python"], "platform": about["platform"]}
    (folder / "issue.md").write_text(issue(said, told), encoding="utf-8")
    return {"repro": display_path(file), "issue": display_path(folder / "issue.md")}, said


def issue(text: str, said: str, failure: ModelFailure, told: Mapping[str, Any], versions: Versions) -> str:
    """The text for the tracker of ONNX Runtime. ``said`` is what the script printed, ``told`` what the record knows
    of the small model, ``versions`` are those of the packages."""
    wrong = "stops at" if failure.kind.startswith("stops") else "gives wrong outputs for"
    passes = " and ".join(failure.passes)
    by = f"graph optimizer ({passes}) " if passes else "graph optimizer " if _of_optimizer(failure) else ""
    ruled_out = [
        "The kernels: with `ORT_DISABLE_ALL` the same model is right on the same inputs."
        if _of_optimizer(failure)
        else f"The model: {registry.named(failure.right).title} computes the expected outputs from it."
    ]
    if passes:
        ruled_out.append(
            f"Other passes: with `disabled_optimizers={list(failure.passes)}` alone the outputs are right."
        )
    ruled_out.append(f"Rounding: the outputs are off by more than {failure.limit:.1g} of their largest value.")
    title = f"[CPU] {by}{wrong} {one_line(', '.join(told['operators']), 120)}"
    return issue_text(title, text, said, ruled_out, versions)


def _of_optimizer(failure: ModelFailure) -> bool:
    return failure.right == "onnxruntime-unoptimized"


def issue_text(
    title: str, text: str, said: str, ruled_out: Iterable[str], versions: Versions, *, beside: Iterable[str] = (),
    expected: Iterable[str] = (), cause: Sequence[str] = (),
) -> str:  # fmt: skip
    """An issue for a tracker: the script, with what lies ``beside`` it, what it said beside what is ``expected``, and
    what is known of the ``cause``."""
    lines = [
        f"# {title}", "", "## To reproduce", "", *fenced(text.rstrip(), "python"), "",
        "The script ends with 1 while the defect lives, and with 0 once it is gone.", *beside, "",
        "## Expected and actual", "", *(part for one in expected for part in (one, "")),
        *fenced(said[:4000].rstrip()), "",
        *(["## Cause", "", *(f"- {one_line(line, 400)}" for line in cause), ""] if cause else []),
        "## What was ruled out", "", *(f"- {line}" for line in ruled_out), "", "## Versions", "",
        *(f"- {name} {one_line(version)}" for name, version in versions.items() if version),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
