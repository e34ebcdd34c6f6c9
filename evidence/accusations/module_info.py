"""PyTorch's own samples of its modules, ModuleInfo: arguments of the constructor and inputs of its tests."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from conformance.case.samples.tried import stand_in_for_expecttest
from evidence.accusations.samples import Named, Sample

EACH = 3
"""Distinct samples of a class, drawn evenly from all that it has: LinearCrossEntropyLoss has 881, most have 3."""

SIGNS, SHARES = "{choice: [-1, 1]}", "{uniform: {low: 0, high: 1}}"
VALUES = {
    "BCELoss": {0: "{uniform: {low: 0.01, high: 0.99}}", 1: SHARES},
    "BCEWithLogitsLoss": {1: SHARES},
    "CosineEmbeddingLoss": {2: SIGNS},
    "CTCLoss": {0: "{uniform: {low: -5, high: -0.1}}"},
    "GaussianNLLLoss": {2: "{uniform: {low: 0.1, high: 2}}"},
    "HingeEmbeddingLoss": {1: SIGNS},
    "MarginRankingLoss": {2: SIGNS},
    "MultiLabelSoftMarginLoss": {1: "{choice: [0, 1]}"},
    "SoftMarginLoss": {1: SIGNS},
}
"""What floats have to be for a loss to mean anything, by class and place."""

SPECIALS: dict[str, tuple[int, ...]] = {"BCELoss": (), "GaussianNLLLoss": (0, 1)}
"""The inputs that NaN may be put into, where PyTorch checks the others and raises."""


def _values(module: torch.nn.Module, tensors: list[torch.Tensor]) -> dict[int, str]:
    name = type(module).__name__
    if name == "KLDivLoss":
        return {1: "{uniform: {low: -5, high: 0}}" if module.log_target else SHARES}
    if name == "PoissonNLLLoss":
        counts = "{uniform: {low: 0, high: 5}}"
        return {1: counts} if module.log_input else {0: counts, 1: counts}
    if name.endswith("CrossEntropyLoss") and len(tensors) > 1 and tensors[-1].is_floating_point():
        return {len(tensors) - 1: SHARES}
    return dict(VALUES.get(name, {}))


def samples() -> Iterator[Named]:
    """At most ``EACH`` of every class, in an order that does not change while torch does not."""
    for info in _module_db():
        distinct: dict[str, Named] = {}
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
            )
            for number, given in enumerate(inputs):
                sample = _sample(info.module_cls, given)
                if sample is not None:
                    name = f"{info.module_cls.__name__}_{number}"
                    distinct.setdefault(_identity(sample), (name, partial(_same, sample)))
        kept = list(distinct.values())
        count = min(EACH, len(kept))
        yield from (kept[place * len(kept) // count] for place in range(count))


def _sample(cls: type[torch.nn.Module], given: Any) -> Sample | None:
    """None for what has no call, or is lazy and becomes another class, which has samples of its own."""
    if given.forward_input is None or cls.__name__.startswith("Lazy"):
        return None
    args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
    module = cls(*args, **kwargs).eval()
    said = [*(_short(one) for one in args), *(f"{name}={_short(one)}" for name, one in kwargs.items())]
    about = f"{cls.__name__}({', '.join(said)})"[:200]
    sample = Sample(about, module, given.forward_input.args, given.forward_input.kwargs)
    sample.values = _values(module, sample.tensors())
    sample.specials = SPECIALS.get(cls.__name__)
    return sample


def _same(sample: Sample) -> Sample:
    return sample


def _short(value: Any) -> str:
    return f"tensor{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def _identity(sample: Sample) -> str:
    """The same for two samples of which one would show nothing that the other does not."""
    plain = (bool, int, float, str, tuple, type(None), torch.dtype)
    settings = [
        (name, type(module).__name__, {key: one for key, one in vars(module).items() if isinstance(one, plain)})
        for name, module in sample.module.named_modules()
    ]
    state = {name: tuple(tensor.shape) for name, tensor in sample.module.state_dict().items()}
    called = [_described(one) for one in (*sample.args, *sample.kwargs.items())]
    return repr((settings, state, called))


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape))
    return tuple(map(_described, value)) if isinstance(value, (tuple, list)) else repr(value)


def _module_db() -> Any:
    stand_in_for_expecttest()
    from torch.testing._internal.common_modules import module_db

    return module_db
