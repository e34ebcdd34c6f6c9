"""Symbolic functions of the TorchScript exporter, registered for one export and undone exactly.

torch keeps symbolics in one registry per process, and unregistering there has gaps: it forgets
what the user had registered before, and leaves an emptied entry behind on which the next export
stops with ``ValueError: min() arg is an empty sequence`` in place of ``UnsupportedOperatorError``.
So a registration here goes to a copy of the registry's content, and undoing it is putting the
untouched original back.

While they are registered, symbolics are watched: a symbolic that drops an input of its operator
exports without complaint, and the model is then wrong for every value of that input but one.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from conformance.case.files.python import call

if TYPE_CHECKING:
    from torch._C import Node, Value

Symbolic: TypeAlias = Callable[..., Any]
Snapshot: TypeAlias = dict[str, Any]
"""What was registered, by operator name; only `changed_since` looks inside."""

_EXPORTER = "torch.onnx._internal.torchscript_exporter"
BY_OPERATOR = "symbolics"
"""The registrar of what a case registers by operator."""
BASE_OPSET = 9
"""Where the exporter looks for a symbolic when the version asked for is lower."""


@dataclass
class Usage:
    """The calls that one scoped registration saw.

    Attributes:
        calls: How often each symbolic was called, by operator name; 0 for a symbolic that never was.
        consumed: For each tensor input that a call received, whether any call used it; by operator
            name and input name. Members of a tensor list are inputs of their own: ``tensors[1]``.
    """

    calls: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, dict[str, bool]] = field(default_factory=dict)
    registrar: str = ""
    """The name of the registrar that is running, or ``BY_OPERATOR``."""
    registered_by: dict[str, list[str]] = field(default_factory=dict)
    """By operator, who registered it, in order; a registrar may do so for several opsets and counts once."""

    @property
    def fights(self) -> dict[str, list[str]]:
        """Operators with the several registrars of each; the order of these decides which registration counts."""
        return {operator: names for operator, names in self.registered_by.items() if len(names) > 1}

    @property
    def ignored(self) -> dict[str, tuple[str, ...]]:
        """Tensor inputs that no call used, of those operators that have any."""
        unused = {
            operator: tuple(name for name, used in inputs.items() if not used)
            for operator, inputs in self.consumed.items()
        }
        return {operator: names for operator, names in unused.items() if names}


@contextmanager
def registered(
    symbolics: Mapping[str, Symbolic],
    registrars: Sequence[Callable[[], None]] = (),
    *,
    opset: int,
) -> Iterator[Usage]:
    """Register symbolics for exports at one opset, and watch them, until the block ends.

    Everything that anybody registers or unregisters inside the block is undone with it, in whatever
    way the block ends. The registry belongs to the process: do not export in another thread
    meanwhile. Import what registers on import, such as torchvision, before: Python imports a module
    once, so a registration undone here would not come back.

    Args:
        symbolics: ``"namespace::operator"`` to a function ``(g, *inputs)``, decorated or not.
        registrars: Functions that register by themselves, at opsets of their choice.
        opset: The opset of the export, for `symbolics`.

    Yields:
        What the symbolics did, for those of `registrars` too; complete when the export is.

    Raises:
        torch.onnx.errors.OnnxExporterError: A name is not of the form ``namespace::operator``.
        ValueError: A name is in the ``onnx`` namespace, which cannot be overridden.
        RuntimeError: This torch keeps its registry in a way that is not known here.
    """
    from torch.onnx import register_custom_op_symbolic  # type: ignore[attr-defined]  # given by a loop there

    registry = _loaded_registry()
    usage = Usage()
    original = registry._registry
    registry._registry = _copied(original)
    try:
        with _watching(registry, usage):
            # At `opset`, because the nearest version not above it wins and torch may have its own
            # there. At the base too, because a node that is called like its operator
            # (my::op -> my::op) is looked up once more, by the version of its domain: mostly 1.
            for version in sorted({min(opset, BASE_OPSET), opset}):
                for name, symbolic in symbolics.items():
                    usage.registrar = BY_OPERATOR
                    register_custom_op_symbolic(name, symbolic, version)
            for register in registrars:
                usage.registrar = getattr(register, "__name__", repr(register))
                register()
        yield usage
    finally:
        registry._registry = original


def snapshot() -> Snapshot:
    """Remember what is registered now, for `changed_since`.

    Raises:
        RuntimeError: This torch keeps its registry in a way that is not known here.
    """
    return _copied(_loaded_registry()._registry)


def changed_since(before: Snapshot) -> list[str]:
    """Return the names of the operators whose registered symbolics, at any opset, are not those of `before`.

    An entry that exists but is empty differs from none: it changes how an export fails.
    """
    now = snapshot()
    return sorted(
        name
        for name in before.keys() | now.keys()
        if name not in before or name not in now or vars(before[name]._functions) != vars(now[name]._functions)
    )


def _loaded_registry() -> Any:
    """torch's registry with all that torch itself registers.

    The exporter imports most of its symbolics on the first export. Done inside a scope, they would
    be undone with it, for good.
    """
    import torch

    try:
        for module in pkgutil.iter_modules(importlib.import_module(_EXPORTER).__path__):
            if module.name.startswith("symbolic_opset"):
                importlib.import_module(f"{_EXPORTER}.{module.name}")
        registry = importlib.import_module(f"{_EXPORTER}.registration").registry
        known = all(
            vars(group).keys() == {"_name", "_functions"}
            and vars(group._functions).keys() == {"_base", "_overrides", "_merged"}
            for group in registry._registry.values()
        )
    except (ImportError, AttributeError) as error:
        raise _unknown_layout(torch.__version__) from error
    if not known:
        raise _unknown_layout(torch.__version__)
    return registry


def _unknown_layout(version: str) -> RuntimeError:
    return RuntimeError(
        f"torch {version} keeps TorchScript symbolics in a way that conformance/models/exporters/symbolics.py does "
        f"not know, so it could not undo a registration; look at {_EXPORTER}.registration"
    )


def _copied(groups: Snapshot) -> Snapshot:
    """The registry's content with tables of its own; the symbolic functions are shared."""
    copies = {}
    for name, group in groups.items():
        # Not by the module ``copy``: there are a thousand groups, and each export and each registration copies all.
        copies[name] = copied = object.__new__(type(group))
        functions = object.__new__(type(group._functions))
        vars(functions).update({layer: dict(table) for layer, table in vars(group._functions).items()})
        vars(copied).update(vars(group), _functions=functions)
    return copies


@contextmanager
def _watching(registry: Any, usage: Usage) -> Iterator[None]:
    """Have every symbolic that is registered inside the block report its calls to `usage`."""
    register = registry.register

    def register_watched(name: str, opset: int, symbolic: Symbolic, custom: bool = False) -> None:
        known = usage.registered_by.setdefault(name, [])
        known += [usage.registrar] if usage.registrar not in known else []
        register(name, opset, _watched(name, symbolic, usage), custom)

    registry.register = register_watched
    try:
        yield
    finally:
        del registry.register  # the method of the class shows again


def _watched(name: str, symbolic: Symbolic, usage: Usage) -> Symbolic:
    if hasattr(symbolic, "to_function_proto"):
        return symbolic  # an onnxscript function: the exporter stores its body and never calls it
    usage.calls.setdefault(name, 0)
    consumed = usage.consumed.setdefault(name, {})

    @functools.wraps(symbolic)  # also copies what parse_args and its like set on the function
    def watched(g: object, *args: object, **kwargs: object) -> object:
        usage.calls[name] += 1
        result = call(f"the symbolic of {name}", symbolic, g, *args, **kwargs)
        names = _tensor_names(name, symbolic, len(args))
        for label, used in _consumption(names, args, result).items():
            consumed[label] = used or consumed.get(label, False)
        return result

    return watched


def _tensor_names(operator: str, symbolic: Symbolic, count: int) -> Sequence[str | None]:
    """The name of each of `count` inputs, None where the operator takes no tensor.

    The exporter has turned numbers into tensors by now, so the overload that was called is no
    longer known: an input is a tensor if any overload of this length says so. An operator without
    a schema lends the names of the symbolic's parameters, or else positions.
    """
    import torch

    schemas = [
        schema.arguments
        for schema in torch._C._jit_get_schemas_for_operator(operator)
        if len(schema.arguments) == count
    ]
    if schemas:
        return [
            next((a.name for a in position if "Tensor" in str(a.type)), None)
            for position in zip(*schemas, strict=True)
        ]
    try:
        parameters = list(inspect.signature(symbolic).parameters.values())[1:]
    except (TypeError, ValueError):  # a callable whose signature cannot be read
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*named, *map(str, range(len(named), count))][:count]


def _consumption(names: Sequence[str | None], args: Sequence[object], result: object) -> dict[str, bool]:
    """For each tensor among `args`, by name, whether `result` is computed from it.

    Left out are None and constants, whose value a symbolic may have read in Python; a tensor of
    fixed shape that the module itself made is a constant by now. A value passed for two parameters
    cannot be told apart: where the result uses it, it counts as used for both.
    """
    members = [
        (name and name + suffix, value)
        for name, arg in zip(names, args, strict=True)
        for suffix, value in _members(arg)
    ]
    # A symbolic that returns None has the exporter keep the node, with all inputs.
    reached = None if result is None else _ancestors(result, {v.debugName() for _, v in members})
    return {
        name: reached is None or value.debugName() in reached
        for name, value in members
        if name and "Tensor" in str(value.type()) and not value.node().kind().endswith("::Constant")
    }


def _members(value: object, suffix: str = "") -> Iterator[tuple[str, Value]]:
    """The values inside a list or tuple with their index, or else the value itself."""
    import torch

    if isinstance(value, list | tuple):
        members: list[object] = list(value)
    elif not isinstance(value, torch._C.Value):
        return
    elif value.node().kind() in ("prim::ListConstruct", "prim::TupleConstruct"):
        members = list(value.node().inputs())
    else:
        yield suffix, value
        return
    for index, member in enumerate(members):
        yield from _members(member, f"{suffix}[{index}]")


def _ancestors(result: object, boundary: set[str]) -> set[str]:
    """Names of all that `result` is computed from, not looking behind the values of `boundary`.

    Looking behind would find inputs of inputs: a size computed from x does not make x used.
    """
    ancestors: set[str] = set()
    pending = [value for _, value in _members(result)]
    while pending:
        value = pending.pop()
        name = value.debugName()
        if name not in ancestors:
            ancestors.add(name)
            if name not in boundary:
                pending.extend(_read_by(value.node()))
    return ancestors


def _read_by(node: Node) -> Iterator[Value]:
    """The values that a node reads, in the bodies of Loop and If too."""
    yield from node.inputs()
    for block in node.blocks():
        yield from block.outputs()
        for inner in block.nodes():
            yield from _read_by(inner)
