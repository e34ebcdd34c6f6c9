"""What case files say is kept from one process to the next: the same document, and never that of another text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.case import document, kept_documents
from conformance.case.document import read_document
from conformance.errors import CaseFileError
from tests.support import run_suite

TEXT = """
one:
  about: a case
  forward: torch.sin(x)
  inputs: {x: {type: "float32[n, 4]", values: {uniform: {low: -.inf, high: .inf}}}}
  dims: {n: 1..4}
  trace: {1: 2, n: 12345678901234567890}
  tags: [a, ~, true, 1.5e300, "é\\u2028"]
""" + "".join(f"# line {number} of a comment that makes the file worth keeping\n" for number in range(60))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "store" / "documents"
    folder.parent.mkdir()
    monkeypatch.setattr(kept_documents, "_folder", folder)
    return folder


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []
    parse = document._parse
    monkeypatch.setattr(document, "_parse", lambda text: texts.append(text) or parse(text))
    return texts


def case_file(folder: Path, text: str = TEXT) -> Path:
    file = folder / "case.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_document_is_parsed_once_and_is_the_same_afterwards(tmp_path, kept, parsed):
    file = case_file(tmp_path)
    first, second = read_document(file), read_document(file)
    assert len(parsed) == 1 and first == second
    assert [type(value) for value in second.values["one"]["tags"]] == [str, type(None), bool, float, str]
    assert second.values["one"]["trace"] == {1: 2, "n": 12345678901234567890}
    assert second.places[("one", "trace", 1)] == (7, 11)


def test_an_edit_of_the_same_length_and_time_is_read(tmp_path, kept, parsed):
    file = case_file(tmp_path)
    read_document(file)
    before = file.stat()
    case_file(tmp_path, TEXT.replace("sin", "cos"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_document(file).values["one"]["forward"] == "torch.cos(x)"
    assert len(parsed) == 2 and len(list(kept.iterdir())) == 1


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:40], lambda data: data[:-1], lambda data: data + b"x",
    lambda data: data[:80] + bytes([data[80] ^ 1]) + data[81:], lambda data: os.urandom(500),
], ids=["empty", "head", "cut", "longer", "one bit", "noise"])  # fmt: skip
def test_what_is_damaged_is_parsed_again(tmp_path, kept, parsed, damage):
    file = case_file(tmp_path)
    first = read_document(file)
    (place,) = kept.iterdir()
    place.write_bytes(damage(place.read_bytes()))
    assert read_document(file) == first and len(parsed) == 2


def test_where_nothing_can_be_kept_files_are_read_all_the_same(tmp_path, kept, parsed):
    file = case_file(tmp_path)
    kept.write_text("a file is in the way", encoding="utf-8")
    assert read_document(file) == read_document(file) and len(parsed) == 2


def test_nothing_is_kept_before_there_is_a_store(tmp_path, kept):
    kept.parent.rmdir()
    read_document(case_file(tmp_path))
    assert not kept.parent.exists()


def test_a_mistake_is_told_each_time(tmp_path, kept):
    file = case_file(tmp_path, TEXT.replace("tags: [", "tags: {"))
    for _ in range(2):
        with pytest.raises(CaseFileError):
            read_document(file)
    assert not kept.exists()


def test_another_version_of_what_reads_documents_makes_its_own(tmp_path, kept, parsed, monkeypatch):
    file = case_file(tmp_path)
    read_document(file)
    monkeypatch.setattr(kept_documents, "__version__", "0.0")
    read_document(file)
    assert len(parsed) == 2


def test_a_second_run_of_the_suite_reads_what_the_first_has_kept(tmp_path):
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases/one.yaml").write_text(
        TEXT.replace("  trace: {1: 2, n: 12345678901234567890}\n", "")
        .replace(", ~, true, 1.5e300", "")
        .replace(", values: {uniform: {low: -.inf, high: .inf}}", ""),
        encoding="utf-8",
    )
    for _ in range(2):
        outcome = run_suite(tmp_path, "--collect-only", "-q", "-k", "one")
        assert outcome.code == 0, outcome.text
        (tmp_path / ".conformance").mkdir(exist_ok=True)
    assert len(list((tmp_path / ".conformance/documents").iterdir())) == 1
