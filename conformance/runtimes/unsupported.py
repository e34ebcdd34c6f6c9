"""Recognise a runtime that does not support what a model asks for, which is no wrong answer of anybody.

Of a file that nobody exported here the question is what runtimes make of it. One that has no kernel for an operator
or a type, or does not read an opset yet, has not been shown to be wrong: the cell is skipped with what it said.
"""

from __future__ import annotations

import re

from conformance.process.errors import text_of
from conformance.runtimes import registry

_UNSUPPORTED = re.compile(
    r"NOT_IMPLEMENTED|not (?:yet )?(?:been )?implemented|could not find an implementation|failed to find kernel"
    r"|kernel not found|is not a registered function/op|under development|unsupported|not supported|no support for"
    r"|(?:does not|doesn't|don't|can't|cannot|do not) (?:currently )?support|only supports?\b|no conversion rule"
    r"|max supported ir version|is invalid\.$|no corresponding numpy type|no op registered for"
    r"|wasn't fully converted|^Unknown type|unknown activation function|specify OpenVINO Extensions to support",
    re.IGNORECASE | re.MULTILINE,
)
"""What ONNX Runtime, OpenVINO and ONNX's evaluator say of models that they have no means for. ``is invalid.`` ends
ONNX Runtime's sentence about a type that its operator does not take: ``Type 'tensor(int16)' of input parameter (x) of
operator (BitShift) in node () is invalid.``"""

_NOISE = (
    r"\[ONNXRuntimeError\] : \d+ : \w+ : ",
    r"Load model from \S+ failed:",
    r"Fatal error: ",
    r"Non-zero status code returned while running (?:\S+ node\. )?Name:'[^']*' Status Message: ",
    r"This is an invalid model\. ",
    r"Exception from \S+\s*",
    r"Check '.*?' failed at \S+?:\d*:?\s",
    r"\S*/onnxruntime_src/\S+ ",
    r"FrontEnd API failed with \w+:?",
    r"\[\w+\] END: node: .* CALLBACK HAS THROWN: ",
    r"Error in Node:",
)
"""What stands around a runtime's sentence: where in its own sources it was raised."""
_ABOUT_ANOTHER = re.compile(r"Model wasn't fully converted|Summary:|While validating|.*with a message:$")
"""The beginnings of lines that only say that another line says why."""
_LONGEST = 240


_LOCALE = "Failed to construct locale"
"""A part of the error of ONNX Runtime where the host lacks a locale."""


def refusal(runtime: str | None, error: BaseException | None) -> str | None:
    """Return in one sentence that a runtime, or the host, does not support a model, by what the runtime has raised;
    None where it stopped at something else."""
    if runtime is None or error is None:
        return None
    if _LOCALE in text_of(error):
        return f"this host lacks the locale that an operator needs, en_US.UTF-8 by default: {sentence(error)}"
    if not _UNSUPPORTED.search(f"{type(error).__name__} {text_of(error)}"):
        return None
    return f"{registry.named(runtime).title} does not take the model: {sentence(error)}"


def sentence(error: BaseException) -> str:
    """Return what a runtime has raised in its own words: the line that says why, without where that was raised."""
    text = text_of(error)
    for noise in _NOISE:
        text = re.sub(noise, " ", text)
    lines = [" ".join(line.split()).removeprefix("-- ") for line in text.splitlines()]
    lines = [line for line in lines if re.search(r"[a-z]{3}", line)] or [type(error).__name__]
    telling = [line for line in lines if not _ABOUT_ANOTHER.match(line)] or lines
    said = next(filter(_UNSUPPORTED.search, telling), telling[0])
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}..."
