"""Text from cases, paths and exceptions, made harmless to look at: what it contains is shown, and does nothing."""

from __future__ import annotations

import math
import re
from typing import Any

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters except tab and newline, ANSI escapes among them; marks that reorder text or are not seen; halves
of surrogate pairs, which UTF-8 cannot hold."""

_EXACT = 2**53
"""JavaScript's numbers cannot tell all integers above this apart."""


def visible(text: str) -> str:
    """``text`` with characters that act, or are not seen, written out: ``␛`` for an escape, ``<U+202E>`` for others.

    Newlines and tabs stay; ``one_line`` makes spaces of them.
    """
    return _CONTROLS.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of control characters
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def one_line(text: object, most: int = 0) -> str:
    """``visible`` text on one line, of at most ``most`` characters (0: of any length); None becomes empty."""
    line = " ".join(visible("" if text is None else str(text)).split())
    return f"{line[: most - 1]}…" if most and len(line) > most else line


def cleaned(value: Any) -> Any:
    """Plain data with every text in it ``visible``; numbers that JSON or JavaScript would change become text."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    return value
