"""Read what a user types for a module: its name, or its file, and the arguments that it is made with."""

from __future__ import annotations

from pathlib import Path

from conformance.process.errors import UserError, display_path


def locate_module(typed: str, option: str = "") -> tuple[Path | None, str]:
    """Return the folder and the dotted name of a module that is given by its file, as ``./audio.py:Net``; of one that
    is given by its name only that name. ``option`` stands before it in errors.

    Raises UserError where there is no such file, or nothing in it is named.
    """
    path, _, inside = typed.rpartition(":")
    if not path.endswith(".py"):
        if typed.endswith(".py") or "/" in typed:
            raise UserError(f"{option}{typed}: name a class or a function in the file, as ./audio.py:Net")
        return None, typed.replace(":", ".")
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{option}{typed}: there is no file {display_path(file)}")
    return file.parent, f"{_module_of(file)}.{inside}"


def _module_of(file: Path) -> str:
    """Return the name of the module in a file: as a part of its package, where the file lies in one, so that its
    relative imports work. Raises UserError for a file that has no such name."""
    from conformance.case.files.python import package_above

    if not file.stem.isidentifier():
        raise UserError(f"{display_path(file)} is no module that Python imports by its name: rename the file")
    package = package_above(file.parent.resolve())
    inside = () if package is None else file.resolve().relative_to(package.parent).with_suffix("").parts
    words = [word for word in inside if word != "__init__"]
    return ".".join(words) if words and all(map(str.isidentifier, words)) else file.stem


def plain_value(name: str, text: str) -> object:
    """Return the value of ``--with NAME=TEXT``, which is YAML. Raises UserError for what is none, and for a value
    that no case can say."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError):  # a date that there is not
        raise UserError(f"--with {name}={text}: the value is no YAML") from None
    if not _is_plain(value):
        raise UserError(f"--with {name}={text}: no case can say such a value; put a text into quotes: '\"{text}\"'")
    return value


def _is_plain(value: object) -> bool:
    """Return whether a value is of the types that a case file has, which knows no dates and no sets."""
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return isinstance(value, (type(None), bool, int, float, str, list, dict)) and all(map(_is_plain, inside))
