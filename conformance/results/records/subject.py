"""Name what a record is about, who says what is right of it, and who is at fault, as sentences do.

A case has a module, which PyTorch computes, or an ONNX file, of which nobody here knows how it was exported. A file
that is checked by itself has no case.
"""

from __future__ import annotations

from conformance.results.records.record import Record

_WHO = {
    "exporter": "the exporter",
    "runtime": "the runtime",
    "precision": "the conversion to this precision",
    "reference": "PyTorch itself",
    "case": "the case",
    "preparation": "the preparation of the inputs",
    "harness": "the harness",
}


def is_of_file(record: Record) -> bool:
    """Return whether a file says what is right, with no PyTorch beside it; of records that do not say, whether the
    model is a file."""
    return bool(record.meaning) or (record.exporter == "onnx" and not record.shipped)


def is_file_alone(record: Record) -> bool:
    """Return whether a model was checked for which nobody has written a case."""
    return str(record.source.get("file")).endswith(".onnx")


def right_one(record: Record) -> str:
    """Return what sentences call that which says what is right: where two files are compared, the one by its name."""
    if not is_of_file(record):
        return "PyTorch"
    return str(record.meaning) if record.meaning and record.shipped else "the file"


def is_of_own_code(record: Record) -> bool:
    """Return whether code of the case's own is known to have made what is wrong: that of the first wrong operator,
    which no pass of the exporter's has changed since."""
    located = record.operator or {}
    names = {located.get("operator"), located.get("within")} - {None}
    if located.get("stage") == "optimizer":
        return False
    return any({*_called(text)} & names for text in record.own_code)


def _called(own: str) -> tuple[str, str]:
    """Return what an operator may be called whose export is this code: ``aten.sub`` of ``f for aten::sub.Tensor``."""
    function, _, operator = own.partition(" for ")
    space, _, name = (operator or function).rpartition("::")
    return function.partition(" at ")[0], f"{space}.{name.partition('.')[0]}" if space else name


def is_shipped(record: Record, fault: str | None) -> bool:
    """Return whether a fault is that of another file than says what is right: an export, or a precision that the file
    has itself, and not one that was made of it here."""
    converted_by = (record.conversion or {}).get("tool", record.shipped)
    return bool(record.shipped) and (fault == "exporter" or (fault == "precision" and converted_by == record.shipped))


def at_fault(record: Record) -> str:
    """Return who is at fault in words; empty where nobody is known to be."""
    fault = record.fault
    if is_shipped(record, fault):
        return str(record.shipped)
    if fault == "exporter" and record.own_code:  # of which it is not known to be that code
        return f"the exporter, or the case's own {', '.join(record.own_code)}"
    if is_of_file(record):
        of_file = {
            "exporter": "whoever made the file",
            "reference": "ONNX's evaluator, which others contradict, or a model that leaves it open",
            **({"case": "the file, or the values that it is given"} if is_file_alone(record) else {}),
        }
        if fault in of_file:
            return of_file[str(fault)]
    return _WHO.get(str(fault), str(fault)) if fault else ""
