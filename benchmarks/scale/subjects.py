"""The subjects of the group: files and modules, how each is made, and the commands that are measured with it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.scale import models

HERE = Path(__file__).parent
EXAMPLES = 5
"""Of the other sides."""
BATCH = 4
"""The size of an open dim for Polygraphy, which takes one; the bare script's are from 1 to 8."""
OURS, ALL, BARE, POLYGRAPHY = "ours", "all", "bare", "polygraphy"
"""The sides: a check by ONNX Runtime, one by all runtimes of the host, and what these are compared with."""


@dataclass(frozen=True)
class File:
    """An ONNX file."""

    name: str
    make: Callable[[Path], None]
    shapes: Mapping[str, Sequence[int]]
    """Of its inputs, for Polygraphy."""
    most: float | None = None
    """Seconds by the clock that a check by ONNX Runtime may take; None where only its ratios count."""

    def prepare(self, folder: Path) -> int:
        """Make the file, and return its bytes, with those of its weights beside it."""
        self.make(folder / "net.onnx")
        return sum(part.stat().st_size for part in folder.glob("net.*"))

    def commands(self) -> dict[str, list[str]]:
        """Return the commands by what is measured, for the folder of the file."""
        check = [sys.executable, "-m", "conformance", "check", "net.onnx", "--precision", "fp32", "--store", "store"]
        check += ["--output", "json=report.json"]
        given = [f"{name}:{list(shape)}".replace(" ", "") for name, shape in self.shapes.items()]
        return {
            OURS: [*check, "--runtime", "onnxruntime"],
            BARE: [sys.executable, str(HERE / "bare_file.py"), "net.onnx"],
            POLYGRAPHY: _polygraphy("net.onnx", given),
            ALL: check,
        }

    def examples(self, folder: Path) -> int:
        """Return how many examples the last check of ``folder`` has verified; 0 where it left no report."""
        if not (folder / "report.json").is_file():
            return 0
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        return _verified(record for model in report["models"] for record in model["records"])


@dataclass(frozen=True)
class Module:
    """A module of ``networks`` by one exporter."""

    name: str
    module: str
    exporter: str
    shape: Sequence[int]
    """Of the input, without the batch."""
    settings: Mapping[str, object] = field(default_factory=dict)
    most: None = None

    def prepare(self, folder: Path) -> int:
        """Write the case, and return the bytes of the weights, of which an exported file mostly consists."""
        shutil.copy(HERE / "networks.py", folder)
        case = {
            "about": "a network", "module": f"networks.{self.module}", "with": self.settings,
            "inputs": {"x": f"float32[{', '.join(map(str, ('batch', *self.shape)))}]"}, "dims": {"batch": "1..4"},
            "runtimes": ["onnxruntime"], "specials": False,
            "export": {self.exporter: [20 if self.exporter == "dynamo" else 17]},
        }  # fmt: skip
        (folder / "case.yaml").write_text(json.dumps({"net": case}), encoding="utf-8")  # which is YAML too
        from benchmarks.scale import networks

        module = getattr(networks, self.module)(**self.settings)
        return sum(parameter.nbytes for parameter in module.parameters())

    def commands(self) -> dict[str, list[str]]:
        """Return the commands by what is measured; Polygraphy, which does not export, runs what a script exports."""
        run = [sys.executable, "-m", "conformance", "run", "case.yaml", "--store", "store", "--report", "report"]
        script = [sys.executable, str(HERE / "bare_module.py"), self.module, self.exporter, "net.onnx"]
        bare = [*script, json.dumps(self.shape), json.dumps(self.settings)]
        batch = str([BATCH, *self.shape]).replace(" ", "")
        return {OURS: run, BARE: bare, POLYGRAPHY: [*bare, *_polygraphy("net.onnx", [f"x:{batch}"])]}

    def examples(self, folder: Path) -> int:
        """Return how many examples the last run of ``folder`` has verified; 0 where it left no report."""
        if not (folder / "report" / "run.json").is_file():
            return 0
        run = json.loads((folder / "report" / "run.json").read_text(encoding="utf-8"))
        return _verified(run["records"])


Subject = File | Module


def subjects(quick: bool) -> list[Subject]:
    """Return all subjects, each with a name of its own; with ``quick`` a small one of each kind."""
    if quick:
        small = {"layers": 2}
        return [
            _mlp("mlp-10", 10), _nodes("nodes-200", 200), _image("image-128", 128), _audio("audio-16k", 1 << 14),
            _inputs("inputs-20", 20), Module("decoder-small", "Decoder", "torchscript", (16, 256), small),
        ]  # fmt: skip
    files = [
        _mlp("mlp-100", 100), _mlp("mlp-1000", 1000, most=60.0), _mlp("mlp-2400", 2400),
        _nodes("nodes-1000", 1000), _nodes("nodes-5000", 5000), _nodes("nodes-20000", 20_000),
        _image("image-1024", 1024), _image("image-4096", 4096), _audio("audio-1M", 1 << 20),
        _audio("audio-16M", 1 << 24), _inputs("inputs-500", 500),
    ]  # fmt: skip
    networks = {"vit": ("ViT", (3, 224, 224)), "resnet": ("ResNet", (3, 224, 224)), "decoder": ("Decoder", (16, 256))}
    modules = [
        Module(f"{name}-{exporter}", module, exporter, shape)
        for name, (module, shape) in networks.items()
        for exporter in ("torchscript", "dynamo")
    ]
    return [*files, *modules]


def _mlp(name: str, megabytes: int, most: float | None = None) -> File:
    """Weights beside the file where one message of protobuf cannot hold them."""
    make = partial(models.mlp, megabytes=megabytes, external=megabytes >= 2000)
    return File(name, make, {"x": (BATCH, models.width_of(megabytes))}, most)


def _nodes(name: str, count: int) -> File:
    return File(name, partial(models.nodes, count=count), {"x": (BATCH, 16)})


def _image(name: str, side: int) -> File:
    return File(name, partial(models.image, side=side), {})


def _audio(name: str, samples: int) -> File:
    return File(name, partial(models.audio, samples=samples), {})


def _inputs(name: str, count: int) -> File:
    return File(name, partial(models.inputs, count=count), {f"x{number}": (BATCH, 8) for number in range(count)})


def _verified(records: Iterable[Mapping[str, Any]]) -> int:
    return sum(record["examples"] for record in records if record["check"] == "accuracy")


def _polygraphy(file: str, shapes: Sequence[str]) -> list[str]:
    """The file twice in ONNX Runtime, as many examples as the bare script has, compared."""
    given = ["--input-shapes", *shapes] if shapes else []
    program = str(Path(sys.executable).with_name("polygraphy"))
    # of the last operators' rounding; its default of 1e-5 is less than what the order of a sum moves
    close = ["--rtol", "1e-3", "--atol", "1e-3"]
    return [program, "run", file, "--onnxrt", "--onnxrt", "--iterations", str(EXAMPLES), *close, *given]
