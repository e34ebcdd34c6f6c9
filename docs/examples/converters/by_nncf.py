import nncf
import numpy as np
import onnx

net, batches = onnx.load("net.onnx"), [{"x": x} for x in np.split(np.load("data.npz")["x"], 16)]
onnx.save(nncf.quantize(net, nncf.Dataset(batches)), "nncf-int8.onnx")
how = {"mode": nncf.CompressWeightsMode.INT4_SYM, "group_size": 32, "all_layers": True}
onnx.save(nncf.compress_weights(onnx.load("net.onnx"), **how), "nncf-int4.onnx")
