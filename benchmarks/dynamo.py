"""The dynamo exporter: what the registry cache saves, and what sharing one capture between opsets would."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.common import Row, in_turn, interleaved, seconds_of
from conformance.models.exporters import dynamo_cache
from conformance.process.worker.warm import prepare_process

OPSETS = (18, 20, 23)
EXPORTS = 3  # in a row, in one measurement of the cache


def rows(quick: bool) -> Iterator[Row]:
    importlib.import_module("conformance.process.worker.preload")  # this and the next line: as in a worker
    prepare_process()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield _cache(1 if quick else 5)
        if quick:
            return
        problem = dynamo_cache.install()
        if problem is not None:
            raise RuntimeError(problem)
        try:
            for name, module, args in _modules():
                yield _sharing(name, module, args)
        finally:
            dynamo_cache.uninstall()


def _cache(repeats: int) -> Row:
    """The same export, three in a row, without and with ``dynamo_cache``, in a process that has exported
    before. The cache forgets when it is taken out, so both sides export once more before they are measured:
    that is what a warm worker has behind it. Bytes of all models of both sides are compared."""
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    models: set[bytes] = set()

    def export() -> None:
        for _ in range(EXPORTS):
            models.add(_export(module, (torch.ones(3, 4),), 20))

    def side(change: Callable[[], object]) -> Callable[[], float]:
        def measure() -> float:
            change()
            _export(module, (torch.ones(3, 4),), 20)
            return seconds_of(export) / EXPORTS

        return measure

    try:
        found = in_turn({"plain": side(dynamo_cache.uninstall), "cached": side(dynamo_cache.install)}, repeats)
    finally:
        dynamo_cache.uninstall()
    ratio = found.ratio("plain", "cached")
    same = "byte-identical" if len(models) == 1 else "models differ"
    return Row(
        "dynamo export of a small module, warm", f"{found['cached'] * 1000:.0f} ms",
        f"torch.onnx.export, {found['plain'] * 1000:.0f} ms", f"faster by {ratio:.1f}, {same}",
        "at least 3 ×, same bytes", len(models) == 1 and ratio.meets(3, at_least=True), repeats,
    )  # fmt: skip


def _export(module: Any, args: tuple[Any, ...], opset: int) -> bytes:
    import torch

    dynamic = tuple({0: torch.export.Dim.DYNAMIC} for _ in args)
    return _bytes(
        torch.onnx.export(module, args, dynamo=True, opset_version=opset, dynamic_shapes=dynamic, verbose=False)
    )


def _bytes(program: Any) -> bytes:
    data: bytes = program.model_proto.SerializeToString(deterministic=True)
    return data


def _modules() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    import torch

    class Asinh(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.asinh(x)

    yield "asinh", Asinh(), (torch.ones(3, 4),)
    conv = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    yield "conv + batch norm", conv, (torch.ones(3, 3, 8, 8),)
    yield "an LSTM", torch.nn.LSTM(4, 8, batch_first=True), (torch.ones(3, 5, 4),)


def _sharing(name: str, module: Any, args: tuple[Any, ...]) -> Row:
    """Opsets 18, 20 and 23 of one module: three exports, against one capture and three exports of it, both with
    the cache. The capture is the exporter's own first step, which has no public name; ``torch.export.export``
    itself gives another model. Its share of the time of three exports bounds what sharing can save."""
    import torch
    from torch.onnx._internal.exporter import _capture_strategies

    dynamic = tuple({0: torch.export.Dim.DYNAMIC} for _ in args)
    program: Any = None
    models: dict[str, list[bytes]] = {}

    def capture() -> None:
        nonlocal program
        strategy = _capture_strategies.TorchExportNonStrictStrategy(verbose=False)
        program = strategy(module, args, None, dynamic_shapes=dynamic).exported_program

    def shared() -> None:
        capture()
        models["shared"] = [
            _bytes(torch.onnx.export(program, dynamo=True, opset_version=opset, verbose=False)) for opset in OPSETS
        ]

    def apart() -> None:
        models["apart"] = [_export(module, args, opset) for opset in OPSETS]

    sides = {"apart": apart, "shared": shared, "capture": capture}
    interleaved(sides, 1)
    found = interleaved(sides, 5)
    same = sum(a == b for a, b in zip(models["apart"], models["shared"], strict=True))
    share = found["capture"] / (found["apart"] / len(OPSETS))
    return Row(
        f"opsets {', '.join(map(str, OPSETS))} of {name}, dynamo", f"{found['apart'] * 1000:.0f} ms",
        f"one shared capture, {found['shared'] * 1000:.0f} ms; the capture is {share:.0%} of an export",
        f"sharing gains {found.ratio('apart', 'shared'):.2f}, {same} of {len(OPSETS)} models identical",
        "not done", repeats=found.repeats,
    )  # fmt: skip
