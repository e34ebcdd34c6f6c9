"""One file stops nothing: whatever a file is or says, it is one failing item in bounded time, and the others run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.case import file as reading
from conformance.case.declaration import Declaration
from conformance.case.file import read
from conformance.case.limits import CASES, CELLS, FILE_KIB, NAME, PROBLEMS, SIZE
from conformance.errors import CaseFileError, UserError
from conformance.plan import catalogue
from conformance.plan.catalogue import Selection, find_case, read_suite
from conformance.plan.cell import Cell
from tests.support import run_suite

SECONDS = 60.0
"""Far more than reading any of the files here takes, and far less than they took without a limit."""

SOUND = """
{name}:
  about: sound
  forward: torch.sin(x)
  inputs: {{x: "float32[n]"}}
  dims: {{n: 1..4}}
"""
BODY = SOUND.format(name="spoiled")


def write_sound(folder: Path) -> None:
    """Two sound files, one that is read before all others of the folder and one after them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("a_first", "z_last"):
        (folder / f"{name}.yaml").write_text(SOUND.format(name=name), encoding="utf-8")


def beside_sound(folder: Path) -> tuple[list[Cell], dict[str, CaseFileError | None]]:
    """What is read of a folder whose two sound files keep all of their cells."""
    start = time.monotonic()
    cells, files = read_suite([folder], Selection())
    assert time.monotonic() - start < SECONDS
    kept = [cell.case.name for cell in cells]
    assert kept.count("a_first") == kept.count("z_last") == 10
    return cells, files


def only_error(files: dict[str, CaseFileError | None]) -> CaseFileError:
    """The error of the only file that has one."""
    (error,) = (error for error in files.values() if error is not None)
    return error


# ---- what a file is ----------------------------------------------------------------------------------------


def a_folder(path: Path) -> None:
    path.mkdir()


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere.yaml")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.chdir(here)


def an_endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_huge_file(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(100_000_000)


def of_zeros(path: Path) -> None:
    path.write_bytes(bytes(1000))


def in_utf_16(path: Path) -> None:
    path.write_text(BODY, encoding="utf-16")


def in_latin_1(path: Path) -> None:
    path.write_bytes(BODY.replace("sound", "s\u00f6und").encode("latin-1"))


@pytest.mark.parametrize("make, message", [
    (a_folder, "a folder, and no case file"), (a_dangling_link, "cannot be read: No such file"),
    (a_link_to_itself, "symbolic links"), (a_pipe, "a named pipe"), (a_socket, "a socket"),
    (an_endless_device, "a device"), (a_huge_file, f"{FILE_KIB} KiB"), (of_zeros, "U+0000"),
    (in_utf_16, "is not UTF-8 text (byte 0)"), (in_latin_1, "is not UTF-8 text (byte 20)"),
])  # fmt: skip
def test_what_is_no_case_file_is_refused_and_the_others_are_read(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    write_sound(tmp_path)
    make(tmp_path / "made.yaml")
    _, files = beside_sound(tmp_path)
    assert len(files) == 3
    (problem,) = only_error(files).problems
    assert message in problem.message
    assert problem.file == tmp_path / "made.yaml"


def test_bytes_that_are_not_text_are_told_at_their_line(tmp_path: Path) -> None:
    write_sound(tmp_path)
    in_latin_1(tmp_path / "made.yaml")
    (problem,) = only_error(read_suite([tmp_path], Selection())[1]).problems
    assert (problem.line, problem.column) == (3, 11)


def test_a_file_with_a_mark_of_utf_8_or_with_windows_line_ends_is_read(tmp_path: Path) -> None:
    write_sound(tmp_path)
    (tmp_path / "marked.yaml").write_bytes(b"\xef\xbb\xbf" + BODY.replace("spoiled", "marked").encode())
    (tmp_path / "windows.yaml").write_bytes(BODY.replace("spoiled", "windows").replace("\n", "\r\n").encode())
    cells, files = beside_sound(tmp_path)
    assert not any(files.values())
    assert {cell.case.name for cell in cells} == {"a_first", "marked", "windows", "z_last"}


def test_a_folder_that_cannot_be_looked_into_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root may look into any folder, the system's answer is planted."""
    write_sound(tmp_path)
    locked = tmp_path / "locked"
    locked.mkdir()
    scandir, listdir = os.scandir, os.listdir

    def refuse(original: Callable[..., object]) -> Callable[..., object]:
        def refusing(path: object = ".") -> object:
            if Path(str(path)) == locked:
                raise PermissionError(13, "Permission denied", str(path))
            return original(path)

        return refusing

    monkeypatch.setattr(os, "scandir", refuse(scandir))
    monkeypatch.setattr(os, "listdir", refuse(listdir))
    _, files = beside_sound(tmp_path)
    assert "cannot be read: Permission denied" in str(only_error(files))


def test_a_file_whose_name_is_no_text_is_read(tmp_path: Path) -> None:
    write_sound(tmp_path)
    (tmp_path / os.fsdecode(b"b\xff.yaml")).write_text(BODY, encoding="utf-8")
    cells, files = beside_sound(tmp_path)
    assert "spoiled" in {cell.case.name for cell in cells}
    for name in files:
        name.encode("utf-8")


def test_a_file_that_several_paths_name_is_read_once(tmp_path: Path) -> None:
    write_sound(tmp_path)
    cells, files = read_suite([tmp_path, tmp_path / "a_first.yaml"], Selection())
    assert (len(cells), len(files)) == (20, 2)
    assert not any(files.values())


@pytest.mark.parametrize("path", ["x" * 5000, "nul\0nul", "file.yaml/inside"])
def test_a_path_that_cannot_be_is_told(tmp_path: Path, path: str) -> None:
    (tmp_path / "file.yaml").touch()
    _, files = read_suite([tmp_path / path], Selection())
    assert "there is no such case file or folder" in str(only_error(files))


# ---- what a file says ------------------------------------------------------------------------------------------


def many(count: int, item: str) -> str:
    return ", ".join(item.format(number) for number in range(count))


EXPLOSIONS = {
    "a range of min of one": (BODY.replace("1..4", "1..min(4)"), "min and max are of two sizes or more"),
    "a function as a size": (BODY.replace("1..4", "1..min"), "min is a function"),
    "a dim called min": (BODY.replace("[n]", "[3]").replace("{n:", "{min:"), "call the dim something else"),
    "100,000 combinations": (
        BODY + f"  vary: {{a: [{many(1000, '{}')}], b: [{many(100, '{}')}]}}\n", "100,000 combinations",
    ),
    "more cases than a file may have": (
        "".join(SOUND.format(name=name) + f"  vary: {{a: [{many(600, '{}')}]}}\n" for name in ("one", "two")),
        f"at most {CASES:,} cases",
    ),
    "more cells than a file may have": (
        BODY + f"  vary: {{a: [{many(900, '{}')}]}}\n  export: {{torchscript: [13, 14, 15, 16, 17]}}\n",
        f"at most {CELLS:,} cells",
    ),
    "nested brackets": ("spoiled:\n  about: " + "[" * 5000 + "]" * 5000 + "\n", "nested deeper"),
    "nested lists": ("spoiled:\n" + "- " * 5000 + "x\n", "nested deeper"),
    "a million laughs": (
        "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(20)),
        "anchors",
    ),
    "tokens": ("spoiled: [" + "a," * 40_000 + "]\n", "keys, values and brackets"),
    "mistakes": (BODY + "".join(f"  unknown{number}: 1\n" for number in range(3000)), "more mistakes"),
    "a list of opsets without an end": (
        BODY + '  fails: [{stage: run, because: x, when: {opset: "200..99999999999999999999"}}]\n',
        "matches no cell",
    ),
    "a range without an end": (BODY.replace("1..4", "1..1000000000000000000"), "is not a size"),
    "a range that grows": (BODY.replace("1..4", "1..9**9**9"), "not Pow"),
    "a constant that grows": (BODY.replace("1..4", "1.." + "*".join(["2147483648"] * 40)), f"the largest is {SIZE}"),
    "spaces before dots": (BODY.replace("1..4", "1" + " " * 50_000 + "x..4"), "longer than 500"),
    "digits": (BODY + "  seed: " + "9" * 50_000 + "\n", "more than 64 bits"),
    "hexadecimal digits": (BODY + "  with: {a: 0x" + "F" * 50_000 + "}\n", "more than 64 bits"),
    "a float above all": (BODY + "  with: {a: 1e999}\n", "larger than a float64"),
    "a name that no file can have": (SOUND.format(name="x" * 300), f"{NAME} bytes of a case's name"),
    "names of varied values": (BODY + f"  vary: {{a: [{'y' * 300}]}}\n", f"{NAME} bytes of a case's name"),
    "draws": (BODY + "  examples: {shapes: 1000000000}\n", "less than or equal to 10000"),
    "values": (BODY + "  examples: {values: 1000000000}\n", "less than or equal to 10000"),
    "an expression": (BODY.replace("torch.sin(x)", "-" * 50_000 + "x"), "at most 4000 characters"),
    "an opset twice": (BODY + "  export: {dynamo: [20, 20]}\n", "stands here twice"),
    "a runtime twice": (BODY + "  runtimes: [onnxruntime, onnxruntime]\n", "stands here twice"),
    "no exporter": (BODY + "  export: {}\n", "names no exporter"),
    "an escape that is no character": (BODY + '  vacuous: "\\0"\n', "U+0000"),
    "half a character": (BODY + '  vacuous: "\\ud800"\n', "U+D800"),
    "an infinite end": (
        BODY.replace('"float32[n]"', '{type: "float32[n]", values: {uniform: {low: 0, high: .inf}}}'), "no end",
    ),
    "an end that the type has not": (
        BODY.replace('"float32[n]"', '{type: "int8[n]", values: {integers: {low: 0, high: 300}}}'), "no int8",
    ),
    "permutations of nothing": (
        BODY.replace('"float32[n]"', '{type: "int64[]", values: {permutations: n}}'), "0-d",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLOSIONS)
def test_what_would_explode_is_refused_in_a_sentence_and_the_others_are_read(tmp_path: Path, name: str) -> None:
    text, message = EXPLOSIONS[name]
    write_sound(tmp_path)
    (tmp_path / "made.yaml").write_text(text, encoding="utf-8")
    cells, files = beside_sound(tmp_path)
    problems = only_error(files).problems
    assert len(problems) <= PROBLEMS + 1
    assert any(message in problem.message for problem in problems), problems
    assert not any("harness" in problem.message for problem in problems)
    assert len(cells) <= 20 + CELLS


def test_as_many_combinations_as_a_file_may_have_are_read(tmp_path: Path) -> None:
    write_sound(tmp_path)
    text = BODY + f"  vary: {{a: [{many(CASES - 1, '{}')}], b: [1]}}\n  export: {{dynamo: [20]}}\n"
    (tmp_path / "made.yaml").write_text(text, encoding="utf-8")
    cells, files = beside_sound(tmp_path)
    assert not any(files.values())
    assert len(cells) == 20 + 5 * (CASES - 1)


def test_dims_at_the_ends_of_all_numbers_are_planned(tmp_path: Path) -> None:
    from conformance.draw.shapes import boundary_sizes, drawn_shapes, shrink, trace_sizes

    names = [f"d{number}" for number in range(64)]
    inputs, sizes = f"x: 'float32[{', '.join(names)}]'", ", ".join(f"{name}: 0..{SIZE}" for name in names)
    text = f"wide:\n  about: x\n  forward: torch.sin(x)\n  inputs: {{{inputs}}}\n  dims: {{{sizes}}}\n"
    (tmp_path / "made.yaml").write_text(text, encoding="utf-8")
    (case,), problems = read(tmp_path / "made.yaml")
    assert problems == []
    start = time.monotonic()
    traced = trace_sizes(case.dims, {})
    assert len(set(traced.values())) == 64
    shapes = boundary_sizes(case.dims, traced)
    assert dict.fromkeys(names, SIZE) in shapes
    assert shrink(case.dims, dict.fromkeys(names, SIZE), lambda sizes: True) == dict.fromkeys(names, 0)
    drawn_shapes(case.dims, 2, 0)
    assert time.monotonic() - start < SECONDS


# ---- the last resort -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("planted\nin two lines"), MemoryError(), RecursionError("planted")])
@pytest.mark.parametrize("place", ["reading", "planning"])
def test_what_nobody_thought_of_is_a_failing_item_that_says_what_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, place: str
) -> None:
    write_sound(tmp_path)
    (tmp_path / "made.yaml").write_text(BODY, encoding="utf-8")
    if place == "reading":
        validate = Declaration.model_validate

        def fails(said: dict[str, object]) -> Declaration:
            if "plant" in said:
                raise error
            return validate(said)

        (tmp_path / "made.yaml").write_text(BODY + "  plant: 1\n", encoding="utf-8")
        monkeypatch.setattr(reading.Declaration, "model_validate", fails)
    else:
        plan = catalogue.plan

        def fails_to_plan(case):
            if case.name == "spoiled":
                raise error
            return plan(case)

        monkeypatch.setattr(catalogue, "plan", fails_to_plan)
    _, files = beside_sound(tmp_path)
    (problem,) = only_error(files).problems
    assert f"failed inside the suite: {type(error).__name__}" in problem.message
    assert "test_casefile_limits.py:" in problem.message or ".py:" in problem.message
    assert "mistake in the harness; please report" in problem.message
    assert "\n" not in problem.message


def test_what_the_user_interrupts_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sound(tmp_path)

    def interrupted(said: object) -> Declaration:
        raise KeyboardInterrupt

    monkeypatch.setattr(reading.Declaration, "model_validate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_suite([tmp_path], Selection())


def test_a_case_is_found_beside_files_that_cannot_be_read(tmp_path: Path) -> None:
    write_sound(tmp_path)
    (tmp_path / "made.yaml").write_text("[", encoding="utf-8")
    assert find_case("z_last", [tmp_path]).name == "z_last"
    with pytest.raises(UserError, match=r"made\.yaml:1:2: .*\n.*there is no case 'spoiled' in what can be read"):
        find_case("spoiled", [tmp_path])


# ---- through pytest --------------------------------------------------------------------------------------------


def test_pytest_collects_all_else_and_each_bad_file_fails(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    write_sound(folder)
    a_pipe(folder / "pipe.yaml")
    a_link_to_itself(folder / "circle.yaml")
    a_folder(folder / "folder.yaml")
    (folder / os.fsdecode(b"name\xff\n.yaml")).write_text("[", encoding="utf-8")
    for number, (text, _) in enumerate(EXPLOSIONS.values()):
        (folder / f"made{number}.yaml").write_text(text, encoding="utf-8")
    (folder / "modules.py").mkdir()
    outcome = run_suite(tmp_path, "--cases", "odd", "-k", "test_case_file")
    bad = 4 + len(EXPLOSIONS)
    assert f"{bad} failed, 2 passed" in outcome.text
    assert outcome.code == 1
    assert "INTERNALERROR" not in outcome.text
    assert "errors during collection" not in outcome.text
    assert "Traceback" not in outcome.text


def test_python_beside_a_case_that_nobody_can_read_does_not_stop_what_changed(tmp_path: Path) -> None:
    """With --changed-since the Python beside cases is read before any cell runs."""
    folder = tmp_path / "cases"
    write_sound(folder)
    case = SOUND.replace("  forward: torch.sin(x)", "  module: {name}.Made")
    (folder / "deep.py").write_text("x = " + "-" * 20_000 + "1\n", encoding="utf-8")
    (folder / "zeros.py").write_bytes(bytes(100))
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    for name in ("deep", "zeros", "folder", "pipe"):
        (folder / f"m_{name}.yaml").write_text(case.format(name=name), encoding="utf-8")
    (folder / "m_data.yaml").write_text(SOUND.format(name="data") + '  depends: "*.py"\n', encoding="utf-8")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(tmp_path)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    (folder / "a_first.yaml").write_text(SOUND.format(name="a_first").replace("1..4", "1..5"), encoding="utf-8")
    outcome = run_suite(tmp_path, "--changed-since", "HEAD", "--collect-only", "-q")
    assert outcome.code == 0, outcome.text
    assert "test_accuracy[a_first-" in outcome.text
    assert "z_last-" not in outcome.text


def test_reading_the_cases_never_runs_python_beside_them(tmp_path: Path) -> None:
    write_sound(tmp_path)
    (tmp_path / "modules.py").write_text("raise SystemExit('ran')\n", encoding="utf-8")
    (tmp_path / "m.yaml").write_text(SOUND.format(name="m").replace("forward: torch.sin(x)", "module: modules.Made"))
    code = "from conformance.plan.catalogue import *; print(len(read_suite([Path(sys.argv[1])], Selection())[0]))"
    command = [sys.executable, "-c", f"import sys; {code}", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "30"
