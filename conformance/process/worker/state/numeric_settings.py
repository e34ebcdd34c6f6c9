"""The settings of PyTorch, of NumPy and of the processor by which the same code computes other numbers."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Iterator
from typing import Any

from conformance.process.worker.state.setting import Setting


def settings() -> Iterator[Setting]:
    yield Setting(
        "the rounding mode", _rounding, _put_back_arithmetic, lambda value, _: _ROUNDING.get(value, "other")
    )
    yield Setting(
        "torch.set_flush_denormal", _denormals, _put_back_arithmetic, lambda value, _: "off" if all(value) else "on"
    )
    yield Setting(
        "numpy.seterr", lambda: sys.modules["numpy"].geterr(), lambda before: sys.modules["numpy"].seterr(**before),
        _other_items, module="numpy",
    )  # fmt: skip
    yield from _torch() if "torch" in sys.modules else ()


def seed(number: int) -> None:
    """Seeds the generators of the process. What a cell draws from them does not depend on the cells before it."""
    random.seed(number)
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(number)
    if "torch" in sys.modules:
        import torch

        torch.default_generator.manual_seed(number)  # torch.manual_seed asks for GPUs first, which takes 0.3 ms


# ---- the processor: its control word is read by what arithmetic gives, which is the same on all processors --------

_ONE, _TINY, _SMALLEST = 1.0, 1e-300, 5e-324  # as variables, since Python computes with constants as it compiles
_ROUNDING = {(True, True, True): "to nearest", (False, True, False): "up", (True, False, True): "down or to zero",
             (True, False, False): "down or to zero"}  # fmt: skip


def _rounding() -> tuple[bool, bool, bool]:
    return _ONE + _TINY == _ONE, _ONE - _TINY == _ONE, _TINY - _ONE == -_ONE


def _denormals() -> tuple[bool, bool]:
    """Return whether a result may be denormal, and whether an operand may."""
    return _TINY * 1e-20 != 0.0, _SMALLEST != 0.0


def _put_back_arithmetic(_: object) -> None:
    """The environment that a process starts with: to nearest, with denormals, without traps."""
    ctypes.CDLL(None).fesetenv(ctypes.c_void_p(-1))  # FE_DFL_ENV
    if "torch" in sys.modules:
        import torch

        torch.set_flush_denormal(False)


# ---- NumPy and PyTorch -----------------------------------------------------------------------------------


def _other_items(value: dict[str, str], other: dict[str, str]) -> str:
    return ", ".join(f"{name}={item}" for name, item in value.items() if other.get(name) != item)


def _torch() -> Iterator[Setting]:
    import torch

    c: Any = torch._C
    yield Setting("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield Setting("torch.set_default_device", _modes, _put_back_modes, _shown_modes)
    transforms: Any = c._functorch  # a call that raises within torch.compile, or an exporter, may leave some behind
    yield Setting(
        "torch.func (transforms that are open)",
        transforms.get_dynamic_layer_stack_depth,
        transforms.pop_dynamic_layer_stack_and_undo_to_depth,
    )
    yield Setting("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads)
    yield Setting("torch.set_grad_enabled", torch.is_grad_enabled, c._set_grad_enabled)
    yield Setting("torch.inference_mode", torch.is_inference_mode_enabled)
    yield Setting(
        "torch.autocast",
        lambda: (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        _put_back_autocast,
    )
    yield Setting(
        "torch.use_deterministic_algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    )
    yield Setting(
        "torch.autograd.set_detect_anomaly",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.autograd.set_detect_anomaly(*value),
    )
    yield Setting(
        "torch.set_float32_matmul_precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    )
    for name, what in (
        ("cudnn_enabled", "cudnn.enabled"), ("cudnn_benchmark", "cudnn.benchmark"),
        ("cudnn_deterministic", "cudnn.deterministic"), ("mkldnn_enabled", "mkldnn.enabled"),
        ("qengine", "quantized.engine"),
    ):  # fmt: skip
        if hasattr(c, f"_get_{name}"):  # not in every version
            yield Setting(f"torch.backends.{what}", getattr(c, f"_get_{name}"), getattr(c, f"_set_{name}"))


def _put_back_autocast(before: tuple[bool, Any]) -> None:
    import torch

    torch.set_autocast_enabled("cpu", before[0])
    torch.set_autocast_dtype("cpu", before[1])


def _modes() -> tuple[int, int, str | None]:
    """Count the modes of torch functions and of dispatch; also the default device.

    That device is one of these modes.
    """
    import torch

    context = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    device = None if context is None else str(context.device)
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(), device


def _put_back_modes(before: tuple[int, int, str | None]) -> None:
    import torch

    functions, dispatches, device = before
    torch.set_default_device(device)
    while torch._C._len_torch_function_stack() > functions:
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack() > dispatches:
        torch._C._pop_torch_dispatch_stack(None)


def _shown_modes(value: tuple[int, int, str | None], other: tuple[int, int, str | None]) -> str:
    functions, dispatches, device = value
    modes = functions + dispatches - (device is not None)
    return f"{device or 'cpu'}" + (f" and {modes} modes of torch" if modes else "")
