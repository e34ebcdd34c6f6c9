"""The state of a module: parameters and buffers of any kind, and whatever else its ``state_dict`` has.

Quantized modules hold packed weights, tuples and dtypes there, and ``get_extra_state`` may give anything that can be
pickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType

import torch
from torch import Tensor, nn

from conformance.process.errors import attempt, or_else


def fingerprint(module: nn.Module) -> str:
    """Return a hash of all that the module holds, the same in every process."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts(module.state_dict()):
        digest.update(part.encode() if isinstance(part, str) else _bytes(part).numpy().data)
    return digest.hexdigest()


def checksums(module: nn.Module) -> list[int]:
    """Return a sum of the bytes of each part of what the module holds, which takes a tenth of a hash."""
    return [sum_of(part) for part in parts(module.state_dict())]


def byte_count(module: nn.Module) -> int:
    """Return the memory that the tensors of a module take."""
    tensors = (part for part in parts(module.state_dict()) if not isinstance(part, str))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def shapes(module: nn.Module) -> dict[str, tuple[object, ...]]:
    """Return the shape of each tensor by its name; of what else there is, its type."""
    return {name: tuple(getattr(value, "shape", (type(value),))) for name, value in module.state_dict().items()}


def parts(value: object) -> Iterator[str | Tensor]:
    """Take a value of any kind apart into texts and plain tensors."""
    return _parts(value, {})


def _parts(value: object, met: dict[int, object]) -> Iterator[str | Tensor]:
    """``met`` are the objects so far, which may be inside of themselves."""
    if isinstance(value, torch.Tensor):
        yield f"{type(value).__name__} {value.dtype}"
        if not torch.nn.parameter.is_lazy(value):
            yield f"{tuple(value.shape)} {value.layout}"
            yield from _of_tensor(value.detach(), met)
    elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, (bytes, bytearray)):
        yield hashlib.blake2b(value).hexdigest()
    elif value is None or isinstance(value, (bool, int, float, complex, str)):
        yield f"{type(value).__name__} {value!r}"
    elif id(value) in met:
        yield f"again {[*met].index(id(value))}"
    else:
        if not isinstance(value, tuple):
            met[id(value)] = value  # which keeps it, so that its id stays its own
        yield type(value).__qualname__
        yield from _of_object(value, met)


def _of_object(value: object, met: dict[int, object]) -> Iterator[str | Tensor]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _parts(name, met)
            yield from _parts(inner, met)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _parts(inner, met)
    elif isinstance(value, (set, frozenset)):  # in no order
        yield from sorted(str([*map(_text, _parts(inner, {**met}))]) for inner in value)
    elif isinstance(value, MethodType):
        yield from _parts((value.__func__, value.__self__), met)
    else:
        yield from _parts(_pickled(value), met)


def _pickled(value: object) -> object:
    """Return what pickle keeps of an object: how it is made again, and its state; nothing where it cannot be
    pickled."""
    state: object = attempt(lambda: value.__reduce_ex__(2))
    if isinstance(state, Exception):
        state = or_else(None, lambda: value.__getstate__())  # packed weights of quantized modules
    if not isinstance(state, tuple):
        return state
    return tuple(list(part) if isinstance(part, Iterator) else part for part in state)  # as items of a list come


def _of_tensor(tensor: Tensor, met: dict[int, object]) -> Iterator[str | Tensor]:
    """Take a tensor apart into its numbers, and what says how they are meant; nothing where it holds none."""
    from torch._subclasses.fake_tensor import is_fake

    if tensor.is_meta or is_fake(tensor):  # as what a module keeps of a call that torch.export captured
        return
    if tensor.is_nested:
        yield from _parts([*tensor.unbind()], met)
    elif hasattr(tensor, "__tensor_flatten__"):  # a class of tensors that is made of others
        names, context = tensor.__tensor_flatten__()
        yield from _parts(context, met)
        for name in names:
            yield from _parts(getattr(tensor, name), met)
    elif tensor.is_quantized:
        yield from _of_quantized(tensor)
    elif tensor.layout == torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    else:
        yield tensor.to_dense() if tensor.layout != torch.strided else tensor.resolve_conj().resolve_neg()


def _of_quantized(tensor: Tensor) -> Iterator[str | Tensor]:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        yield f"{tensor.q_scale()!r} {tensor.q_zero_point()}"
    else:
        yield f"{tensor.q_per_channel_axis()}"
        yield from (tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points())
    yield tensor.int_repr()


def _bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)


def sum_of(part: str | Tensor) -> int:
    """Return the sum of the bytes of a tensor, and a hash of a text, which no other process has."""
    if isinstance(part, str):
        return hash(part)
    flat = _bytes(part)
    whole = flat.numel() // 8 * 8
    return int(flat[:whole].view(torch.int64).sum()) + int(flat[whole:].sum())


def _text(part: str | Tensor) -> str:
    return part if isinstance(part, str) else hashlib.blake2b(_bytes(part).numpy().data).hexdigest()
