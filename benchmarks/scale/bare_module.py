"""``python bare_module.py CLASS EXPORTER FILE SHAPE JSON``: a module of ``networks`` exported into a file, opened in
ONNX Runtime, run on five examples and compared with PyTorch. What somebody writes who has no harness."""

import json
import sys

import networks
import numpy as np
import onnxruntime
import torch


def export(module, example, exporter, file):
    names = {"input_names": ["x"], "output_names": ["y"]}
    if exporter == "dynamo":
        shapes = ({0: torch.export.Dim.DYNAMIC},)
        torch.onnx.export(module, (example,), file, dynamo=True, opset_version=20, dynamic_shapes=shapes, **names)
    else:
        axes = {"x": {0: "batch"}}
        torch.onnx.export(module, (example,), file, dynamo=False, opset_version=17, dynamic_axes=axes, **names)


def main(name, exporter, file, shape, settings):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module = getattr(networks, name)(**json.loads(settings)).eval()
    shape = json.loads(shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with torch.no_grad():
        export(module, torch.randn(2, *shape), exporter, file)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        for batch in (1, 2, 3, 4, 1):
            x = torch.randn(batch, *shape)
            wanted = module(x).numpy()
            (got,) = session.run(None, {"x": x.numpy()})
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


if __name__ == "__main__":
    main(*sys.argv[1:])
