"""Nodes of ONNX for symbolics of the TorchScript exporter."""

import torch

NUMBERS = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7, torch.bool: 9,
    torch.float16: 10, torch.float64: 11,
}  # fmt: skip
"""The numbers that ONNX has for types."""


class Op:
    """``op.Add(x, 1.0)`` puts a node into the graph; numbers and lists among its inputs become constants."""

    def __init__(self, g):
        self.g, self.opset = g, g.opset

    def __getattr__(self, name):
        def node(*inputs, **attributes):
            types = [self.type(given) for given in inputs if isinstance(given, torch._C.Value)]
            number = next((found for found in types if found is not torch.bool), torch.float32)
            values = [self.value(given, number) for given in inputs]
            return self.g.op(name, *values, **{f"{key}_{letter(value)}": value for key, value in attributes.items()})

        return node

    def value(self, given, number):
        """A constant of a number, in the type ``number``, or of a list of whole numbers; a value as it is."""
        if isinstance(given, torch._C.Value):
            return given
        if isinstance(given, (list, tuple)):
            if any(isinstance(member, torch._C.Value) for member in given):
                return self.g.op("Concat", *(self.Reshape(member, [1]) for member in given), axis_i=0)
            return self.g.op("Constant", value_t=torch.tensor(given, dtype=torch.int64))
        return self.g.op("Constant", value_t=torch.tensor(given, dtype=number))

    def type(self, x):
        """The type of a value; that of a size where the exporter does not know it."""
        return x.type().dtype() or torch.int64

    def dtype(self, x):
        return NUMBERS[self.type(x)]

    def rank(self, x):
        return x.type().dim()

    def is_integer(self, x):
        return not self.type(x).is_floating_point

    def alike(self, *values):
        """The values in the type that PyTorch computes in."""
        known = [value for value in values if isinstance(value, torch._C.Value)]
        samples = [self.sample(value) for value in known]
        wanted = torch.result_type(samples[0], samples[-1])
        return [
            self.Cast(value, to=NUMBERS[wanted]) if value in known and self.type(value) != wanted
            else self.value(value, wanted)
            for value in values
        ]  # fmt: skip

    def sample(self, x):
        """Something of the value's type and kind: a number, a tensor without dims, or one with some."""
        one = torch.ones([1] * bool(self.rank(x)), dtype=self.type(x))
        return one.item() if self.rank(x) == 0 and constant(x) is not x else one

    def of_code(self, dtype):
        """ONNX's number of a type by the code that TorchScript has for it."""
        return (2, 3, 5, 6, 7, 10, 1, 11)[dtype] if dtype < 8 else 9


def letter(value):
    first = value[0] if isinstance(value, (list, tuple)) else value
    return "s" if isinstance(first, str) else "f" if isinstance(first, float) else "i"


def read(arguments, *forms):
    """The arguments of a symbolic by name, of the form that has as many; those with a ``*`` are tensors."""
    names = next(form.split() for form in forms if len(form.split()) == len(arguments))
    return {
        name.strip("*"): optional(value) if name.endswith("*") else constant(value)
        for name, value in zip(names, arguments, strict=True)
    }


def optional(value):
    return None if value is None or value.node().mustBeNone() else value


def constant(value):
    """The Python value of a constant; the value itself where it is none."""
    if not isinstance(value, torch._C.Value) or optional(value) is None:
        return value if not isinstance(value, torch._C.Value) else None
    node = value.node()
    if node.kind() == "prim::ListConstruct":
        return [constant(member) for member in node.inputs()]
    if node.kind() == "prim::Constant":
        found = value.toIValue()
    elif node.kind() == "onnx::Constant":
        found = getattr(node, node.kindOf("value"))("value")
    else:
        return value
    return found.tolist() if isinstance(found, torch.Tensor) else found
