"""One file stops nothing: whatever a file is or says, it is one failing item in bounded time, and the others run."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.case.draw.shapes import boundary_sizes, drawn_shapes, shrink, trace_sizes
from conformance.case.files.case_file import read
from conformance.case.files.declaration import Declaration
from conformance.case.files.limits import CASES, CELLS, FILE_KIB, NAME, PROBLEMS, SIZE
from conformance.case.plan import catalogue
from conformance.case.plan.catalogue import Selection, find_case, read_suite
from conformance.case.plan.cell import Cell
from conformance.process.errors import CaseFileError, UserError
from tests.kit.runs import run_suite

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two sound files: one that is read before all others in it, and one after them."""
    folder = tmp_path / "cases"
    folder.mkdir()
    for name in ("a_first", "z_last"):
        (folder / f"{name}.yaml").write_text(SOUND.format(name=name), encoding="utf-8")
    return folder


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


def a_link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def a_huge_file(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(100_000_000)


def of_bytes(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


LATIN_1 = of_bytes(BODY.replace("sound", "s\u00f6und").encode("latin-1"))


@pytest.mark.parametrize("make, message", [
    (Path.mkdir, "a folder, and no case file"), (a_link("nowhere.yaml"), "cannot be read: No such file"),
    (a_link("made.yaml"), "symbolic links"), (os.mkfifo, "a named pipe"),
    (a_link("/dev/zero"), "a device"), (a_huge_file, f"{FILE_KIB} KiB"), (of_bytes(bytes(1000)), "U+0000"),
    (of_bytes(BODY.encode("utf-16")), "is not UTF-8 text (byte 0)"), (LATIN_1, "is not UTF-8 text (byte 20)"),
])  # fmt: skip
def test_what_is_no_case_file_is_refused_and_the_others_are_read(folder, make, message):
    make(folder / "made.yaml")
    _, files = beside_sound(folder)
    assert len(files) == 3
    (problem,) = only_error(files).problems
    assert message in problem.message and problem.file == folder / "made.yaml"
    assert make is not LATIN_1 or (problem.line, problem.column) == (3, 11)


def test_a_file_with_a_mark_of_utf_8_or_with_windows_line_ends_is_read(folder):
    (folder / "marked.yaml").write_bytes(b"\xef\xbb\xbf" + BODY.replace("spoiled", "marked").encode())
    (folder / "windows.yaml").write_bytes(BODY.replace("spoiled", "windows").replace("\n", "\r\n").encode())
    cells, files = beside_sound(folder)
    assert not any(files.values())
    assert {cell.case.name for cell in cells} == {"a_first", "marked", "windows", "z_last"}


def test_a_folder_that_cannot_be_looked_into_is_refused(folder):
    """As root may look into any folder, its path is longer than the system takes."""
    inside = os.open(folder, os.O_RDONLY)
    for _ in range(17):
        os.mkdir("d" * 250, dir_fd=inside)
        outside, inside = inside, os.open("d" * 250, os.O_RDONLY, dir_fd=inside)
        os.close(outside)
    os.close(inside)
    _, files = beside_sound(folder)
    assert "cannot be read: File name too long" in str(only_error(files))


@pytest.mark.parametrize("path", ["x" * 5000, "nul\0nul", "file.yaml/inside"])
def test_a_path_that_cannot_be_is_told(folder, path):
    (folder / "file.yaml").touch()
    _, files = read_suite([folder / path], Selection())
    assert "there is no such case file or folder" in str(only_error(files))


def many(count: int, item: str) -> str:
    return ", ".join(item.format(number) for number in range(count))


EXPLOSIONS = {
    "a range of min of one": (BODY.replace("1..4", "1..min(4)"), "min and max are of two sizes or more"),
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
    "a million laughs": ("a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(20)),
        "anchors"),
    "tokens": ("spoiled: [" + "a," * 40_000 + "]\n", "keys, values and brackets"),
    "mistakes": (BODY + "".join(f"  unknown{number}: 1\n" for number in range(3000)), "more mistakes"),
    "a range without an end": (BODY.replace("1..4", "1..1000000000000000000"), "is not a size"),
    "a range that grows": (BODY.replace("1..4", "1..9**9**9"), "not Pow"),
    "spaces before dots": (BODY.replace("1..4", "1" + " " * 50_000 + "x..4"), "longer than 500"),
    "digits": (BODY + "  seed: " + "9" * 50_000 + "\n", "more than 64 bits"),
    "a float above all": (BODY + "  with: {a: 1e999}\n", "larger than a float64"),
    "a name that no file can have": (SOUND.format(name="x" * 300), f"{NAME} bytes of a case's name"),
    "draws": (BODY + "  examples: {shapes: 1000000000}\n", "less than or equal to 10000"),
    "an expression": (BODY.replace("torch.sin(x)", "-" * 50_000 + "x"), "at most 4000 characters"),
    "an opset twice": (BODY + "  export: {dynamo: [20, 20]}\n", "stands here twice"),
    "no exporter": (BODY + "  export: {}\n", "names no exporter"),
    "an escape that is no character": (BODY + '  vacuous: "\\0"\n', "U+0000"),
    "half a character": (BODY + '  vacuous: "\\ud800"\n', "U+D800"),
    "an infinite end": (
        BODY.replace('"float32[n]"', '{type: "float32[n]", values: {uniform: {low: 0, high: .inf}}}'), "no end",
    ),
    "an end that the type has not": (
        BODY.replace('"float32[n]"', '{type: "int8[n]", values: {integers: {low: 0, high: 300}}}'), "no int8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLOSIONS)
def test_what_would_explode_is_refused_in_a_sentence_and_the_others_are_read(folder, name):
    text, message = EXPLOSIONS[name]
    (folder / "made.yaml").write_text(text, encoding="utf-8")
    cells, files = beside_sound(folder)
    problems = only_error(files).problems
    assert len(problems) <= PROBLEMS + 1
    assert any(message in problem.message for problem in problems), problems
    assert not any("harness" in problem.message for problem in problems)
    assert len(cells) <= 20 + CELLS


def test_as_many_combinations_as_a_file_may_have_are_read(folder):
    text = BODY + f"  vary: {{a: [{many(CASES - 1, '{}')}], b: [1]}}\n  export: {{dynamo: [20]}}\n"
    (folder / "made.yaml").write_text(text, encoding="utf-8")
    cells, files = beside_sound(folder)
    assert not any(files.values())
    assert len(cells) == 20 + 5 * (CASES - 1)


def test_dims_at_the_ends_of_all_numbers_are_planned(tmp_path):
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


@pytest.mark.parametrize("error", [RuntimeError("planted\nin two lines"), MemoryError(), RecursionError("planted")])
@pytest.mark.parametrize("place", [(Declaration, "model_validate"), (catalogue, "plan")])
def test_what_nobody_thought_of_is_a_failing_item_that_says_what_to_report(folder, plant, error, place):
    (folder / "made.yaml").write_text(BODY.replace("sound", "plant"), encoding="utf-8")
    plant(error, *place)
    _, files = beside_sound(folder)
    (problem,) = only_error(files).problems
    assert f"failed inside the suite: {type(error).__name__}" in problem.message
    assert ".py:" in problem.message and "mistake in the harness; please report" in problem.message
    assert "\n" not in problem.message


def test_what_the_user_interrupts_ends_the_reading(folder, plant):
    (folder / "made.yaml").write_text(BODY.replace("sound", "plant"), encoding="utf-8")
    plant(KeyboardInterrupt(), Declaration, "model_validate")
    with pytest.raises(KeyboardInterrupt):
        read_suite([folder], Selection())


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``plant(error, owner, name)``: that function raises the error for the case that is about a plant."""

    def plant_(error: BaseException, owner: object, name: str) -> None:
        original = getattr(owner, name)

        def fails(said: object, *more: object) -> object:
            about = said["about"] if isinstance(said, dict) else said.says.about  # type: ignore[attr-defined]
            if about == "plant":
                raise error
            return original(said, *more)

        monkeypatch.setattr(owner, name, fails)

    return plant_


def test_a_case_is_found_beside_files_that_cannot_be_read(folder):
    (folder / "made.yaml").write_text("[", encoding="utf-8")
    assert find_case("z_last", [folder]).name == "z_last"
    with pytest.raises(UserError, match=r"made\.yaml:1:2: .*\n.*there is no case 'spoiled' in what can be read"):
        find_case("spoiled", [folder])


def test_pytest_collects_all_else_and_each_bad_file_fails(tmp_path, folder):
    os.mkfifo(folder / "pipe.yaml")
    (folder / "circle.yaml").symlink_to("circle.yaml")
    (folder / "folder.yaml").mkdir()
    (folder / os.fsdecode(b"name\xff\n.yaml")).write_text("[", encoding="utf-8")
    for name in ("nested brackets", "a million laughs", "100,000 combinations", "half a character"):
        (folder / f"{name}.yaml").write_text(EXPLOSIONS[name][0], encoding="utf-8")
    (folder / "modules.py").mkdir()
    outcome = run_suite(tmp_path, "--cases", "cases", "-k", "test_case_file")
    assert "8 failed, 2 passed" in outcome.text and outcome.code == 1
    assert not any(word in outcome.text for word in ("INTERNALERROR", "errors during collection", "Traceback"))


@pytest.mark.needs("git")
def test_python_beside_a_case_that_nobody_can_read_does_not_stop_what_changed(tmp_path, folder):
    """With --changed-since the Python beside cases is read before any cell runs."""
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
    assert "test_accuracy[a_first-" in outcome.text and "z_last-" not in outcome.text


def test_reading_the_cases_never_runs_python_beside_them(folder):
    (folder / "modules.py").write_text("raise SystemExit('ran')\n", encoding="utf-8")
    (folder / "m.yaml").write_text(SOUND.format(name="m").replace("forward: torch.sin(x)", "module: modules.Made"))
    assert len(beside_sound(folder)[0]) == 30
