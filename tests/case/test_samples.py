"""Cases made of the samples of PyTorch's own tests."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from conformance.case.files.case_file import load
from conformance.case.files.declaration import Case
from conformance.case.samples import told, tried
from conformance.case.samples.told import LeftOut, OfOperator
from conformance.process.disk.stores import make
from conformance.process.errors import CaseFileError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory, in which PyTorch is asked once for all that these tests need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("samples"))
        yield Path.cwd()


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    told.ask.cache_clear()
    monkeypatch.setattr(told, "_told", [])


def cases(folder: Path, samples: str, more: str = "") -> list[Case]:
    file = folder / "operators.yaml"
    file.write_text(f"operators:\n  about: Operators.\n  samples: {samples}\n{more}", encoding="utf-8")
    return load(file)


def test_a_sample_is_a_case_whose_sizes_and_values_vary_as_far_as_pytorch_takes_them(folder: Path) -> None:
    names = ["log", "nn.functional.gelu", "select", "bernoulli", "fft.fft"]

    made = cases(folder, f"{{only: [{', '.join(names)}], but: [fft.r*], each: 1, grow: [sizes, values]}}")

    assert [case.name for case in made] == [f"operators-{name}-0" for name in ("log", "nn.functional.gelu", "select")]
    log, gelu, select = (case.says for case in made)
    assert gelu.forward is not None and gelu.forward.startswith("torch.nn.functional.gelu(x0")
    assert gelu.dims and not gelu.inputs["x0"].values
    assert log.inputs["x0"].values is not None  # of negative numbers it makes NaN
    assert [sizes.low.text for sizes in select.dims.values()] == ["1", "5", "1"]  # the call takes the third of a row
    assert made[0].varied == {"operator": "log", "sample": 0}
    [line] = told.notes()
    assert line.startswith("PyTorch's samples of these operators are no cases: ")
    assert "bernoulli (it draws random numbers)" in line and "fft.fft (complex outputs)" in line


def test_a_samples_own_sizes_and_range_stay_unless_they_are_to_grow() -> None:
    [own] = tried.told_of("log", 1, ())

    assert isinstance(own, OfOperator) and "dims" not in own.said and "values" in own.said["inputs"]["x0"]


@pytest.mark.parametrize(
    ("samples", "more", "said"),
    [
        ("{only: gellu}", "", "no operator of torch.op_db is called 'gellu'; did you mean 'gelu'?"),
        ("{only: gelu}", "", "no sample of these operators is a case; of gelu: it draws random numbers"),
        ("{only: abs}", "  inputs: {x: 'float32[2]'}\n", "there is nothing to say under inputs"),
        ("{olny: abs}", "", "unknown key 'olny'; did you mean 'only'?"),
        ("{from: torch.module_db}", "", "torch.module_db"),
    ],
)
def test_a_mistake_is_told_at_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: str, more: str, said: str
) -> None:
    why = {"operator": "gelu", "number": 0, "why": "it draws random numbers"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        told, "_tried", lambda asked: json.dumps({"operators": ["gelu"], "told": [why] * ('"gelu"' in asked)})
    )

    with pytest.raises(CaseFileError) as error:
        cases(tmp_path, samples, more)

    assert said in str(error.value) and "operators.yaml:3:" in str(error.value)


def test_samples_are_kept_for_this_version_of_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = '{"operators": ["a"], "told": [{"operator": "a", "number": 0, "why": "for a reason"}]}'
    runs: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(told, "_tried", lambda asked: runs.append(asked) or given)

    for version in ("1.0", "1.0", "2.0"):
        monkeypatch.setattr(told.metadata, "version", lambda package, version=version: version)
        told.ask.cache_clear()
        answer = told.ask(("a",), (), 1, ())

    assert answer.told == [LeftOut("a", 0, "for a reason")]
    assert len(runs) == 2  # once for each version


def test_keeping_samples_leaves_a_store_of_another_version_to_be_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(told, "_tried", lambda asked: '{"operators": [], "told": []}')
    (tmp_path / ".conformance" / "models").mkdir(parents=True)
    (tmp_path / ".conformance" / ".gitignore").write_text("*\n", encoding="utf-8")

    told.ask(("a",), (), 1, ())

    assert list((tmp_path / ".conformance" / "samples").glob("*.json"))
    assert make(tmp_path / ".conformance")  # the run says that its results are made again


def test_an_operator_whose_sample_ends_the_process_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def told_of(name: str, each: int, grow: Sequence[str]) -> list[OfOperator]:
        if name == "ends":
            os.kill(os.getpid(), signal.SIGKILL)
        return [OfOperator(name, 0, {})]

    monkeypatch.setattr(tried, "told_of", told_of)

    [one, lost, other] = tried._asked(["one", "ends", "other"], 1, [])

    assert one == OfOperator("one", 0, {}) and other == OfOperator("other", 0, {})
    assert isinstance(lost, LeftOut) and "the process ends on PyTorch's own sample" in lost.why


def test_values_that_depend_on_each_other_and_changed_inputs_are_seen() -> None:
    def both(operator: Any, said: str) -> object:
        tensors = [torch.tensor([3.0, 4.0])]
        monkey = {"forward": said, "inputs": {"x0": {"type": "float32[2]", "values": operator}}}
        return tried._told("an operator", tried._Sample(0, monkey, tensors, (), {}), ())

    close = both({"uniform": {"low": 0.0, "high": 9.0}}, "torch.linalg.cholesky(x0.diag() - x0[0] + 3)")
    assert isinstance(close, LeftOut) and "raises on other values" in close.why
    changed = both({"uniform": {"low": 0.0, "high": 9.0}}, "x0.add_(1)")
    assert isinstance(changed, OfOperator) and changed.said["clones"] is True


def test_samples_that_would_show_nothing_are_passed_over() -> None:
    made = tried.told_of("exp", 2, ())  # one of its three kinds of samples has no value
    [constant] = tried.told_of("ones_like", 1, ())

    assert [one.number for one in made if isinstance(one, OfOperator)] == [0, 2]
    assert isinstance(constant, LeftOut) and "the same whatever" in constant.why
    assert isinstance(tried.told_of("any", 1, ())[0], OfOperator)  # True of all that is drawn, and False of zeros


@pytest.mark.parametrize(("operator", "grow", "call"), [
    ("argmin", "arguments", "torch.argmin(x0, dim=0, keepdim=True)"),
    ("cumsum", "dtypes", "torch.cumsum(x0, 1, dtype=torch.float64)"),
    ("cumsum", "negative", "torch.cumsum(x0, -2)"),
])  # fmt: skip
def test_calls_that_the_samples_taken_lack_are_added(operator: str, grow: str, call: str) -> None:
    two = {one.said["forward"] for one in tried.told_of(operator, 2, ()) if isinstance(one, OfOperator)}
    more = {
        one.said["forward"] for one in tried.told_of(operator, 2, ("arguments", grow)) if isinstance(one, OfOperator)
    }

    assert call not in two and call in more


def test_operators_of_integers_alone_and_the_other_dtypes_of_one_are_cases_where_dtypes_grow() -> None:
    assert not tried.told_of("bitwise_not", 1, ())

    made = tried.told_of("bitwise_not", 1, ("dtypes",))

    types = [one.said["inputs"]["x0"]["type"].partition("[")[0] for one in made if isinstance(one, OfOperator)]
    assert types == ["int64", "int32", "bool"]


def test_sizes_that_change_how_many_outputs_there_are_stay() -> None:
    [unbound] = tried.told_of("unbind", 1, ("sizes",))

    assert isinstance(unbound, OfOperator) and "dims" not in unbound.said


def test_boundaries_that_are_searched_ascend_in_all_that_is_drawn() -> None:
    """Of others PyTorch leaves open what comes out: no exporter is at fault for that."""
    made = tried.told_of("bucketize", 2, ("sizes", "values"))
    [log] = tried.told_of("log", 1, ("sizes",))

    of_boundaries = [one.said["inputs"]["x1"] for one in made if isinstance(one, OfOperator)]
    assert [entry["sorted"] for entry in of_boundaries] == [True, True]
    assert isinstance(log, OfOperator) and "sorted" not in log.said["inputs"]["x0"]


@pytest.mark.parametrize(("operator", "number", "types"), [
    ("matmul", 3, ["float32[n0, n1]", "float32[n1, 5]"]),
    ("add", 5, ["float32[n0, n1, n2]", "float32[n0, n1, n2]"]),
    ("nn.functional.conv2d", 0, ["float32[1, n2, n0, n1]", "float32[3, n2, 3, 3]", "float32[3]"]),
])  # fmt: skip
def test_each_axis_varies_by_itself_if_pytorch_takes_it_and_those_of_weights_do_not(
    operator: str, number: int, types: list[str]
) -> None:
    [made] = [one for one in tried.told_of(operator, 2, ("sizes",)) if one.number == number]

    assert isinstance(made, OfOperator)
    assert [entry["type"] for entry in made.said["inputs"].values()] == types
