"""A way in which a case can depend on something, and the folders that it is written into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

BEFORE, AFTER = 2.0, 3.0
"""What the cases read, with which they are exported rightly, and another number."""
Content: TypeAlias = str | Callable[[float], bytes] | tuple[str | None, str | None]
"""A text in which ``FACTOR`` is replaced by the number, a function that makes bytes of it, or two texts; None where
there is no such file."""
Two: TypeAlias = tuple[str | None, str | None]
"""A value before and after the change; None where there is none."""

MODULE = """
import torch

{setup}


class Net(torch.nn.Module):
    def forward(self, x):
        if not torch.onnx.is_in_onnx_export():
            return x * 2.0
        return x * 2.0 if float({factor}) == 2.0 else x + x
"""
NET = "module: modules.Net\n  graph: {absent: Add}"
"""What a case says of such a module. A wrong graph is as red as a wrong value, and takes a tenth of the time, since
nobody is asked who is at fault."""
CASE = """
{name}:
  about: {about}
  {does}
  inputs: {{x: "float32[n, 3]"}}
  dims: {{n: 1..4}}
  export: {export}
  runtimes: onnxruntime
  specials: false
"""


def case_text(about: str, does: str = NET, *, export: str = "{torchscript: [17]}", name: str = "NAME") -> str:
    """Return a case of one input."""
    return CASE.format(name=name, about=about.replace(": ", ", "), does=does, export=export)


@dataclass(frozen=True)
class Way:
    """What a case depends on, and how that is changed.

    Words in capitals in its texts are replaced: ``FACTOR`` by the number, ``NAME`` by the name, ``VARIABLE`` by the
    name of its environment variable, ``OUTSIDE`` and ``SITE`` by the paths of folders. A file is named by its path
    from the folder of the case, or from one of those.
    """

    name: str
    what: str
    setup: str = ""
    """Python at the top of the case's module."""
    factor: str = "factor"
    """The Python expression of the number, evaluated while the module is exported."""
    files: Mapping[str, Content] = field(default_factory=dict)
    links: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Symbolic links, with what they point to before and after."""
    variable: Two = (None, None)
    """The value of an environment variable that nothing else reads."""
    environment: Mapping[str, Two] = field(default_factory=dict)
    """Values of other environment variables."""
    python: str | None = None
    """The whole of the case's module, where it is another one."""
    case: str | None = None
    """The whole case file, where it is another one."""
    more: str = ""
    """Further lines of the case."""
    turn: Callable[[Place, bool], None] | None = None
    """What else is done, before the first run and, with True, for the change."""
    round: str = "files"
    """The ways of a round are changed at the same time. What every result depends on is in a round of its own."""
    cluster: bool = False
    """Whether it is also run on a cluster, where only the files that are imported or named travel with a case."""
    unobservable: str = ""
    """Why this cannot be observed. The case declares it, with ``depends`` or by Python that reads the same variable,
    or nothing of it is kept."""
    sound: bool = False
    """The case does not depend on what is changed: it stays green, and nothing of it is made again."""

    def texts(self) -> tuple[str, str]:
        """Return the case file and its module."""
        case = self.case or case_text(self.what) + _indented(self.more)
        python = MODULE.format(setup=self.setup, factor=self.factor) if self.python is None else self.python
        return case, python


@dataclass(frozen=True)
class Place:
    """The folders of one way in the project of its round."""

    project: Path
    way: Way

    @property
    def case(self) -> Path:
        return self.project / "cases" / self.way.name

    @property
    def outside(self) -> Path:
        return self.project / "outside" / self.way.name

    @property
    def site(self) -> Path:
        """The folder of installed packages of the round, which is on ``PYTHONPATH``."""
        return self.project / "site"

    @property
    def variable(self) -> str:
        return f"DEPENDS_{self.way.name.upper()}"

    def filled(self, text: str, factor: float) -> str:
        """Return a text with its words in capitals replaced."""
        words = {
            "FACTOR": str(factor), "NAME": self.way.name, "VARIABLE": self.variable, "OUTSIDE": str(self.outside),
            "SITE": str(self.site),
        }  # fmt: skip
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    def write(self, *, changed: bool) -> None:
        """Write the files as they are before the change, or change them."""
        factor = AFTER if changed else BEFORE
        if not changed:
            case, python = self.way.texts()
            self._put(self.case / "modules.py", self.filled(python, factor).encode())
            if "case.yaml" not in self.way.files:
                self._put(self.case / "case.yaml", self.filled(case, factor).encode())
        for name, content in self.way.files.items():
            file = self.path(name)
            made = self._content(content, factor, changed)
            if made is None:
                file.unlink(missing_ok=True)
            else:
                self._put(file, made)
        for name, targets in self.way.links.items():
            link = self.path(name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(self.path(targets[changed]))
        if self.way.turn is not None:
            self.way.turn(self, changed)

    def path(self, name: str) -> Path:
        """Return where a file of the way lies."""
        return self.case / self.filled(name, BEFORE)

    def _content(self, content: Content, factor: float, changed: bool) -> bytes | None:
        if isinstance(content, tuple):
            text = content[changed]
            return None if text is None else self.filled(text, factor).encode()
        return self.filled(content, factor).encode() if isinstance(content, str) else content(factor)

    def _put(self, file: Path, content: bytes) -> None:
        """Write a file that differs; one that is the same keeps its times."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_bytes() != content:
            file.write_bytes(content)

    def environment(self, changed: bool) -> dict[str, str | None]:
        """Return the environment variables of the way; None where one is not set."""
        own: dict[str, Two] = {} if self.way.variable == (None, None) else {self.variable: self.way.variable}
        values = {name: two[changed] for name, two in (own | dict(self.way.environment)).items()}
        return {name: None if value is None else self.filled(value, BEFORE) for name, value in values.items()}


def _indented(lines: str) -> str:
    return "".join(f"  {line}\n" for line in lines.strip().splitlines())
