"""Weights that a case asks for: of a file, or such that every part of a fresh module shows in its outputs; and those
that a lazy module has after its first call.

A fresh network is asleep in places: a LayerScale of 1e-6, projections and gates that begin at zero, weights drawn
with a standard deviation of 0.02 whatever the layer, batch norms with a mean of 0 and a variance of 1. What such a
part computes hardly reaches the output, so that a wrong one passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from conformance.case.files.copying import copied
from conformance.process.errors import Stopped, or_else, stopping

Calls = Callable[[Module], Iterable[Callable[[], object]]]
"""Yields calls of a module."""

SMALL = 0.1
"""Below this typical size a parameter that is added to, or multiplied with, values of about 1 does not show."""
GAIN = math.sqrt(2)
"""The standard deviation of a product's weights, times the root of the number of its terms: keeps values at scale
where half of them are cut off (K. He et al., "Delving deep into rectifiers", 2015)."""
PASSES = 8
"""How many inputs the statistics of batch norms are taken from."""


def load_weights(module: Module, file: Path) -> None:
    """Load the weights of a file into the module: safetensors by its name, else a state_dict that torch.load reads
    with ``weights_only``. Stopped at ``declare`` where it cannot be read, or holds other weights."""
    if not file.is_file():
        raise Stopped("declare", "MissingFile", f"weights: there is no {file.name} beside the case file", "case")

    def say(error: Exception) -> str:
        said = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())[:400]
        return f"weights: {file.name}: {said}"

    with stopping("declare", "case", say, "WrongWeights"):
        try:
            if file.suffix == ".safetensors":
                from safetensors.torch import load_file

                state = load_file(file)
            else:
                state = torch.load(file, map_location="cpu", weights_only=True)
            module.load_state_dict(state)
        except ImportError:
            text = f"weights: {file.name} needs the package safetensors, which is not installed"
            raise Stopped("declare", "MissingPackage", text, "case") from None


def settle(module: Module, calls: Calls) -> bool:
    """Give a lazy module, such as ``LazyLinear``, its parameters: their sizes are those that the first of the
    ``calls`` shows. Return whether the module has become one of another class by that."""
    if not any(map(torch.nn.parameter.is_lazy, (*module.parameters(), *module.buffers()))):
        return False
    before = type(module)
    module.eval()
    with torch.no_grad():
        next(iter(calls(module)))()
    return type(module) is not before


def awaken(module: Module, seed: int, calls: Calls) -> None:
    """Give parameters that are asleep a scale at which they show, and fresh batch norms the statistics of the calls
    that ``calls`` makes of a copy of the module. All else stays as it is."""
    generator = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    with torch.no_grad():
        for owner in module.modules():
            for name, parameter in owner.named_parameters(recurse=False):
                if parameter.is_floating_point() and parameter.numel() and id(parameter) not in done:
                    done.add(id(parameter))
                    _wake(owner, name, parameter, generator)
        _calibrate(module, [name for name, norm in module.named_modules() if _is_fresh(norm)], calls, generator)


def _wake(owner: Module, name: str, parameter: Tensor, generator: Generator) -> None:
    def normal(size: float) -> Tensor:
        return torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) * size

    def factors() -> Tensor:
        return torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype) + 0.5

    size = float(parameter.square().mean().sqrt())
    constant = bool((parameter == parameter.reshape(-1)[0]).all())
    terms = _terms(owner, name, parameter)
    if terms:
        wanted = GAIN / math.sqrt(terms)
        if size < 0.9 * wanted:
            parameter.copy_(normal(wanted) if constant else parameter * (wanted / size))
    elif name.endswith("bias"):
        if size < SMALL:
            parameter.copy_(normal(3 * SMALL))
    elif constant and (size < SMALL or (size == 1 and parameter.numel() > 1)):
        parameter.copy_(factors())  # a scale: of a LayerScale, of a norm
    elif size < SMALL:
        parameter.mul_(5 * SMALL / size)


def _terms(owner: Module, name: str, parameter: Tensor) -> int:
    """Return how many products are added up for a value that the parameter's owner computes with it; 0 where it is no
    weight of such sums."""
    if isinstance(owner, _ConvTransposeNd) and name == "weight":
        strides = math.prod(owner.stride)
        return max(1, int(parameter.numel()) // (int(parameter.shape[1]) * owner.groups * strides))
    products = (nn.Linear, _ConvNd, nn.MultiheadAttention)
    if isinstance(owner, products) and name.endswith("weight") and parameter.ndim > 1:
        return int(parameter.numel() // parameter.shape[0])
    return 0


def _is_fresh(module: Module) -> bool:
    """Return whether it is a batch norm with the statistics that it was made with."""
    if not isinstance(module, _BatchNorm) or module.running_mean is None or module.running_var is None:
        return False
    return not module.running_mean.any() and bool((module.running_var == 1).all())


def _calibrate(module: Module, names: list[str], calls: Calls, generator: Generator) -> None:
    """Give the batch norms with these names the mean statistics of the calls; where the module cannot be called so,
    as with a single value for each channel, others that are not 0 and 1."""
    if not names:
        return
    norms: list[Any] = [module.get_submodule(name) for name in names]

    def measure() -> list[Any]:
        called = copied(module).eval()  # what else calls leave in a module must not be in this one
        measured: list[Any] = [called.get_submodule(name) for name in names]
        for norm in measured:
            norm.train()
            norm.momentum = None  # the mean of all calls
        for call in calls(called):
            call()
        return measured

    measured = or_else(None, measure)
    if measured is None:
        for norm in norms:
            shape, dtype = norm.running_mean.shape, norm.running_mean.dtype
            norm.running_mean.copy_(torch.randn(shape, generator=generator, dtype=dtype) * 3 * SMALL)
            norm.running_var.copy_(torch.rand(shape, generator=generator, dtype=dtype) + 0.5)
        return
    for norm, other in zip(norms, measured, strict=True):
        norm.running_mean.copy_(other.running_mean)
        norm.running_var.copy_(other.running_var)
