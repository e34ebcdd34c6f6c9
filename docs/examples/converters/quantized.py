import torch
from net import batch, data, export, net
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from torchao.quantization.pt2e import move_exported_model_to_eval, quantize_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86


def pt2e(trains=False):
    config = x86.get_default_x86_inductor_quantization_config(is_qat=trains)
    prepare = quantize_pt2e.prepare_qat_pt2e if trains else quantize_pt2e.prepare_pt2e
    program = torch.export.export(net, (data[:2],), dynamic_shapes=batch)
    ready = prepare(program.module(), x86.X86InductorQuantizer().set_global(config))
    steps = torch.optim.SGD(ready.parameters(), lr=1e-4)
    for x in data.split(16):
        loss = ready(x).square().mean()  # stands for yours
        if trains:
            loss.backward()
            steps.step()
    move_exported_model_to_eval(ready)
    return quantize_pt2e.convert_pt2e(ready)


def weights():
    quantize_(net, Int8WeightOnlyConfig())
    return net


if __name__ == "__main__":
    export(pt2e(), "torchao-pt2e.onnx")
    export(weights(), "torchao-weights.onnx")
