"""Edit the entries of ``fails`` in the text of a case file, and nothing else of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node

from conformance.judge.case_edits import flow
from conformance.process.errors import or_else

Said: TypeAlias = dict[str, Any]
"""An entry as a case file has it: when, stage, error, fault, because."""
Changed: TypeAlias = Mapping[str, Any]
"""Other values of an entry's keys; None for a key that it is to lose."""


def edited(
    text: str, start: int, changes: Mapping[int, Changed | None], added: Sequence[Said], lines: Sequence[int]
) -> str | None:
    """Return the text of a case file in which the case that begins at a line (from 1) has other entries of ``fails``;
    None where the case is not written line by line, or has its entries from elsewhere.

    ``changes`` are by the number of an entry, None for one that goes, and ``lines`` those at which entries stand.
    """
    after: str | None = text
    if changes:
        after = or_else(None, lambda: _changed(text, start, changes, lines))
    if after is not None and added:
        after = inserted(after, start, [flow(said) for said in added])
    return after if after is not None and _is_right(text, after, start, changes, added) else None


def _changed(text: str, start: int, changes: Mapping[int, Changed | None], lines: Sequence[int]) -> str | None:
    """Return the text with other values of some entries; raise whatever where the text is not as it is thought."""
    case = next(value for key, value in _nodes(text).value if key.start_mark.line == start - 1)
    key, fails = next((key, value) for key, value in case.value if key.value == "fails")
    entries: list[Any] = fails.value
    if [entry.start_mark.line + 1 for entry in entries] != [*lines]:
        return None
    gone = {number for number, change in changes.items() if change is None}
    edits = [edit for number, said in changes.items() if said for edit in _edits(text, entries[number], said)]
    if len(gone) == len(entries):
        edits = [(*_rows(text, key.start_mark.line, fails), "")]
    elif fails.flow_style and gone:
        kept = [_span(text, entry) for number, entry in enumerate(entries) if number not in gone]
        if edits:
            return None  # one line, in which both would be changed
        edits = [(fails.start_mark.index, fails.end_mark.index, f"[{', '.join(text[a:b] for a, b in kept)}]")]
    else:
        edits += [(*_rows(text, entries[number].start_mark.line, entries[number]), "") for number in gone]
    for first, end, new in sorted(edits, reverse=True):
        text = text[:first] + new + text[end:]
    return text


def _nodes(text: str) -> MappingNode:
    node: MappingNode = YAML(typ="safe", pure=True).compose(text)
    return node


def _span(text: str, node: Node) -> tuple[int, int]:
    """Return where a value stands, without the blanks behind it."""
    first, end = node.start_mark.index, node.end_mark.index
    return first, first + len(text[first:end].rstrip())


def _rows(text: str, line: int, node: Node) -> tuple[int, int]:
    """Return where the lines from this one to the last of a value stand, without comments behind it."""
    lines = text.splitlines(keepends=True)
    value = re.sub(r"(\n[ \t]*(#[^\n]*)?)+\Z", "", text[node.start_mark.index : node.end_mark.index])
    end = node.start_mark.line + value.count("\n") + 1
    return sum(map(len, lines[:line])), sum(map(len, lines[:end]))


def _edits(text: str, entry: Any, changed: Changed) -> Iterator[tuple[int, int, str]]:
    pairs = {key.value: (key, value) for key, value in entry.value}
    for name, value in changed.items():
        if name in pairs and value is not None:
            yield (*_span(text, pairs[name][1]), flow(value))
        elif name in pairs:
            following = [key.start_mark.index for key, _ in entry.value if key.start_mark.index > _start(pairs[name])]
            yield _start(pairs[name]), following[0], ""
        elif value is not None:  # behind the stage, which every entry has; conditions before it
            comma = ", " if entry.flow_style else f"\n{' ' * entry.start_mark.column}"
            if name == "when":
                at = entry.start_mark.index + bool(entry.flow_style)
                yield at, at, f"{name}: {flow(value)}{comma}"
            else:
                _, at = _span(text, pairs["stage"][1])
                yield at, at, f"{comma}{name}: {flow(value)}"


def _start(pair: tuple[Any, Any]) -> int:
    return int(pair[0].start_mark.index)


def inserted(text: str, start: int, made: Sequence[str]) -> str | None:
    """Return the text of a case file with entries of ``fails`` added to the case that begins at a line (from 1); None
    where the case or its ``fails`` is not written line by line."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if not re.fullmatch(r"[^\s#][^#]*:\s*(#.*)?", lines[start - 1].rstrip()):
        return None
    end = next((at for at in range(start, len(lines)) if re.match(r"[^\s#]", lines[at])), len(lines))
    while end > start and not lines[end - 1].strip():
        end -= 1
    keys = [match for at in range(start, end) if (match := re.match(r"( +)[\w\"']", lines[at]))]
    if not keys:
        return None
    indent = keys[0][1]
    at = next((at for at in range(start, end) if re.match(rf"{indent}fails:", lines[at])), None)
    if at is None:
        return "".join([*lines[:end], f"{indent}fails:\n", *_items(f"{indent}  ", made), *lines[end:]])
    rest = lines[at].rstrip()[len(f"{indent}fails:") :].strip()
    if rest.startswith("[") and rest.endswith("]"):
        head, _, _ = lines[at].rpartition("]")
        comma = ", " if rest[1:-1].strip() else ""
        return "".join([*lines[:at], f"{head}{comma}{', '.join(made)}]\n", *lines[at + 1 :]])
    if rest and not rest.startswith("#"):
        return None
    first = re.match(r"( *)- ", lines[at + 1]) if at + 1 < end else None
    if first is None:
        return None
    return "".join([*lines[: at + 1], *_items(first[1], made), *lines[at + 1 :]])


def _items(indent: str, made: Sequence[str]) -> Iterator[str]:
    return (f"{indent}- {said}\n" for said in made)


def _is_right(
    before: str, after: str, start: int, changes: Mapping[int, Changed | None], added: Sequence[Said]
) -> bool:
    """Return whether the later text differs in the entries of that case, as it has to, and in nothing else."""
    try:
        old, new = (YAML(typ="safe", pure=True).load(text) for text in (before, after))
        name = next(key.value for key, _ in _nodes(before).value if key.start_mark.line == start - 1)
    except YAMLError:
        return False
    was = (old[name] or {}).pop("fails", None) or []
    now = (new.get(name) or {}).pop("fails", None) or []
    kept = [_with(said, changes[number]) if number in changes else said for number, said in enumerate(was)]
    left = [said for said in kept if said is not None]
    return bool(old == new and now in ([*added, *left], [*left, *added]))


def _with(said: Said, changed: Changed | None) -> Said | None:
    if changed is None:
        return None
    return {name: value for name, value in {**said, **changed}.items() if value is not None}
