"""Fixtures: environments that are stood in for, and a folder of wheels as the only place where pip looks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.extras.versions import environments, runtimes, torch_releases
from conformance.extras.versions.environments import Environment, Wanted
from tests.extras.versions.support import StandIn, python, wheel

TORCHES = ("2.8.0", "2.9.0", "2.10.0", "2.10.1", "2.11.0", "2.10.1+cpu")


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """As ``StandIn`` says, from within an empty folder."""
    monkeypatch.chdir(tmp_path)

    def use(releases: list[str], shell: Callable[[str], str]) -> None:
        def made(wanted: Wanted, *_: object) -> Environment:
            version = releases[-1] if wanted.version == "latest" else wanted.version.replace("*", "0")
            return Environment(wanted, python(tmp_path / f"python-{version}", shell(version)), version)

        def available(package: str) -> list[str]:
            return releases

        for module, function in ((runtimes, made), (torch_releases, made), (environments, available)):
            monkeypatch.setattr(module, function.__name__, function)

    return use


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks, though the environment at hand has constraints on pip, as tox sets them."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in TORCHES:
        wheel(folder, "torch", version, "cuda_parts")
    wheel(folder, "vision", "0.1", "torch>=2.9")
    wheel(folder, "vision", "0.2", "torch>=2.11")
    for name, version in (
        ("cuda_parts", "1.0"), ("arrays", "1.0"), ("arrays", "1.1"), ("numpy", "2.0"), ("onnx", "1.20"),
        ("onnxruntime", "1.27.0"), ("onnxruntime", "1.27.1"), ("onnxruntime", "1.28.0"),
    ):  # fmt: skip
        wheel(folder, name, version)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torch==2.11.0\n", encoding="utf-8")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraints))
    return folder
