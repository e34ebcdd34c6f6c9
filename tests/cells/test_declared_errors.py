"""A declared error excuses the error that it names, and no other."""

import pytest

from conformance.case.files.case_file import load
from conformance.process.errors import CaseFileError, Stopped
from conformance.results.records.settle import agrees
from tests.kit.cases import write_case

pytestmark = pytest.mark.smoke

CASE = """
inputs: {x: "float32[2]"}
forward: x + 1
fails: [{stage: %s, error: %s, because: a test}]
"""


@pytest.mark.parametrize("stage, error", [
    ("export", "''"), ("export", "' '"), ("run", "': '"), ("export", "not 10!"), ("run", "'a:       '"),
    ("compare", "values differ by more than allowed"), ("compare", "output 0"), ("latency", "took longer than"),
    ("check", "'onnx.checker refuses the model:'"), ("check", "refuses the model"), ("export", "', caused by '"),
])  # fmt: skip
def test_an_error_that_would_excuse_any_failure_is_refused_at_its_line(tmp_path, stage, error):
    file = write_case(tmp_path, CASE % (stage, error))
    with pytest.raises(CaseFileError, match="would excuse other failures too") as refused:
        load(file)
    (problem,) = refused.value.problems
    assert "fails" in file.read_text().splitlines()[problem.line - 1]


@pytest.mark.parametrize("error", ["KeyError", "SIGSEGV", "exit 1", "Cannot view a tensor", "a::b is not registered"])
def test_a_name_or_a_telling_part_of_a_text_is_read(tmp_path, error):
    assert load(write_case(tmp_path, CASE % ("export", f'"{error}"')))


@pytest.mark.parametrize("declared, error, cause, reason, same", [
    ("KeyError", "KeyError", None, "KeyError: 'a'", True), ("KeyError", "MyKeyError", None, "MyKeyError: 'a'", False),
    ("KeyError", "RuntimeError", "KeyError", "RuntimeError, caused by KeyError: 'a'", True),
    ("KeyError", "RuntimeError", "KeyErrors", "RuntimeError, caused by KeyErrors: 'a'", False),
    ("KeyError", "RuntimeError", None, "RuntimeError: KeyError", False),
    ("KeyError", "RuntimeError", None, "RuntimeError: it says ', caused by KeyError: '", False),
    ("exit 1", "exit 139", None, "the process ended with exit 139", False),
    ("exit 1", "exit 1", None, "the process ended", True),
    ("is not registered", "RuntimeError", None, "a::b is not registered here", True),
    ("is not registered", "RuntimeError", None, "a::b has no kernel", False),
    ("", "RuntimeError", None, "anything", False), (None, "RuntimeError", None, "anything", True),
])  # fmt: skip
def test_a_name_is_compared_whole_and_a_text_in_part(declared, error, cause, reason, same):
    failure = Stopped("run", error, reason)
    failure.caused_by = cause
    assert agrees("run", declared, failure) is same and not agrees("export", declared, failure)
