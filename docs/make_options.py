"""Prints ``docs/options.md`` from the parsers of the options, so that it cannot go stale."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from conformance.front.cli import GROUPS
from conformance.front.plugin import declared_options as of_suite
from conformance.front.plugin import hookspecs

INTRO = """# Options

<!-- Generated: python docs/make_options.py > docs/options.md -->

## pytest conformance

In a session of pytest that names other tests first, each option is written with `--conformance-` in front, as in
`--conformance-examples 3`, so that none meets an option of another plugin. `conformance run` takes the same options.

pytest's own options work as everywhere: `-k` and `-m` select, `-x` stops at the first failure. Several cells run at a
time (`--cell-workers`), those of one module in one process, and tests end in the order in which their cells do. With
`-n` of pytest-xdist each of its processes runs cells, one at a time, as `--dist` says. Ids of tests read
`test_accuracy[asinh-torchscript-op17-onnxruntime-fp32]`; `-k` also finds a cell by its own id and by the tags of its
case, and `-m latency` keeps the budgets of time alone. Exit codes are pytest's.

What would be given on every command line stands in `pyproject.toml`, here or in a folder above, where paths are those
of that folder. Any other option, also of pytest's `addopts`, goes before; paths of cases take the place of `cases`.

```toml
[tool.conformance]
cases = ["cases", "models/cases"]
runtime = ["onnxruntime", "openvino"]
baseline = "reports/baseline.jsonl"
budget = "60s"
require-provider = true
```

`conformance check` and `watch` take what they know of it, and other commands `store`."""

OUTRO = """## Exit codes

| code | of `conformance` |
|---|---|
| 0 | success |
| 1 | something was found: a failure, something worse, a difference, a cell that could not be packed |
| 2 | something to correct: the last line of the output says what |
| 3 | a mistake of this package: please report it with the lines that are printed |
| 5 | `replay`: every cell was skipped; `check`: nothing could be verified |

## Colours and completion

With the variable `NO_COLOR`, with `TERM=dumb` and in a file nothing is coloured.

The Tab key completes commands and options once the shell has read the script that `conformance completion` prints. It
needs argcomplete (`pip install argcomplete`):

    conformance completion bash > ~/.local/share/bash-completion/completions/conformance
    conformance completion zsh > "${fpath[1]}/_conformance"
    conformance completion fish > ~/.config/fish/completions/conformance.fish"""


class _PytestParser:
    """As much of pytest's parser as declaring options takes."""

    def __init__(self) -> None:
        self.parser = argparse.ArgumentParser(add_help=False)

    def getgroup(self, name: str, description: str) -> _PytestParser:
        return self

    def addoption(self, *names: str, **settings: Any) -> None:
        self.parser.add_argument(names[0], **settings)


def options() -> str:
    """The page."""
    of_pytest = _PytestParser()
    of_suite.add(of_pytest, short=True)  # type: ignore[arg-type]
    parts = [INTRO, *_table(of_pytest.parser._actions), "", "### Hooks", "", *_hooks()]
    for title, group in GROUPS.items():
        parts += ["", f"## {title.capitalize()}"]
        for name, (about, example) in group.items():
            parser = argparse.ArgumentParser(add_help=False)
            importlib.import_module(f"conformance.front.commands.{name}").arguments(parser)
            parts += ["", f"### conformance {name}", "", f"{about[0].upper()}{about[1:]}.", "", f"    {example}"]
            parts += _table(parser._actions)
    return "\n".join([*parts, "", OUTRO])


def _hooks() -> Iterator[str]:
    """Yield the hooks of other plugins, as they say it of themselves."""
    yield from (inspect.getdoc(hookspecs) or "", "", "```python")
    written = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("pytest_")}
    yield from (f"def {name}{inspect.signature(hook)}: ...".replace("'", "") for name, hook in written.items())
    yield from ("```", "", "| hook | |", "|---|---|")
    yield from (f"| `{name}` | {' '.join((hook.__doc__ or '').split())} |" for name, hook in written.items())


def _table(actions: Iterable[argparse.Action]) -> Iterator[str]:
    shown = (action for action in actions if action.help != argparse.SUPPRESS)
    rows = [f"| `{_written(action)}` | {_help(action)} |" for action in shown]
    if rows:
        yield from ("", "| option | |", "|---|---|", *rows)


def _written(action: argparse.Action) -> str:
    """As it is typed: its name, and what follows."""
    value = "" if action.nargs == 0 else f"{action.metavar or '|'.join(action.choices or [action.dest.upper()])}"
    if not action.option_strings:
        return f"{value}{' ...' if action.nargs in ('*', '+') else ''}".replace("|", "\\|")
    value = f"[{value}]" if action.nargs == "?" else value
    return f"{action.option_strings[0]} {value}".rstrip().replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {"default": action.default}
    if action.required and action.option_strings:
        text = f"{text}; required"
    default = "" if "default" in text or not isinstance(action.default, int | float | str) else action.default
    return f"{text} (default: {default})" if default not in ("", False) else text


if __name__ == "__main__":
    print(options())
