"""The dynamo exporter: what the registry cache saves, and what sharing one capture between opsets would."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from benchmarks.common import Row, interleaved
from conformance import dynamo_cache
from conformance.runner import prepare_process


def rows(quick: bool) -> Iterator[Row]:
    import torch

    prepare_process()  # as in a worker
    warnings.simplefilter("ignore")
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    models: dict[str, bytes] = {}

    def three(kind: str) -> None:
        for _ in range(3):
            models[kind] = _export(module, (torch.ones(3, 4),), 20)

    seconds = {"plain": float("inf"), "cached": float("inf")}
    for _ in range(1 if quick else 4):
        # The cache forgets when it is taken out, so each side warms up before it is measured.
        for kind, change in (("plain", dynamo_cache.uninstall), ("cached", dynamo_cache.install)):
            change()
            three(kind)
            seconds[kind] = min(seconds[kind], interleaved({kind: lambda kind=kind: three(kind)}, 3)[kind] / 3)  # type: ignore[misc]
    dynamo_cache.uninstall()
    ratio = seconds["plain"] / seconds["cached"]
    same = "byte-identical" if models["plain"] == models["cached"] else "models differ"
    yield Row(
        "dynamo export of a small module, warm", f"{seconds['cached'] * 1000:.0f} ms",
        f"torch.onnx.export, {seconds['plain'] * 1000:.0f} ms", f"{ratio:.1f} × faster, {same}",
        "at least 3 ×, same bytes", ratio >= 3 and same == "byte-identical",
    )  # fmt: skip
    if quick:
        return
    dynamo_cache.install()
    for name, module_, args in _modules():
        shared, apart = _sharing(module_, args)
        yield Row(
            f"three opsets of {name}, dynamo", f"{apart * 1000:.0f} ms",
            f"sharing one torch.export, {shared * 1000:.0f} ms", f"{apart / shared:.2f} ×", "reported; not done",
        )  # fmt: skip


def _export(module: Any, args: tuple[Any, ...], opset: int) -> bytes:
    import torch

    dynamic = None if args is None else tuple({0: torch.export.Dim.DYNAMIC} for _ in args)
    program = torch.onnx.export(module, args, dynamo=True, opset_version=opset, dynamic_shapes=dynamic, verbose=False)
    assert program is not None
    data: bytes = program.model_proto.SerializeToString(deterministic=True)
    return data


def _modules() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    import torch

    yield "softsign", torch.nn.Softsign(), (torch.ones(3, 4),)
    conv = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    yield "conv + batch norm", conv, (torch.ones(3, 3, 8, 8),)


def _sharing(module: Any, args: tuple[Any, ...]) -> tuple[float, float]:
    """Seconds for opsets 18, 20 and 23: from one capture, and each with its own. The capture is the exporter's
    own first step, which has no public name; torch.export.export itself gives another model."""
    import torch
    from torch.onnx._internal.exporter import _capture_strategies

    dynamic = tuple({0: torch.export.Dim.DYNAMIC} for _ in args)

    def shared() -> None:
        strategy = _capture_strategies.TorchExportNonStrictStrategy(verbose=False)
        program = strategy(module, args, None, dynamic_shapes=dynamic).exported_program
        assert program is not None
        for opset in (18, 20, 23):
            torch.onnx.export(program, dynamo=True, opset_version=opset, verbose=False)

    def apart() -> None:
        for opset in (18, 20, 23):
            _export(module, args, opset)

    seconds = interleaved({"shared": shared, "apart": apart}, 5)
    return seconds["shared"], seconds["apart"]
