from olive.workflows import run

blocks = {"block_size": 32}
passes = {"OnnxBlockWiseRtnQuantization": blocks, "OnnxHqqQuantization": blocks}
passes |= {"OnnxDynamicQuantization": {}, "OnnxFloatToFloat16": {"keep_io_types": True}}
given = {"type": "ONNXModel", "model_path": "net.onnx"}
for name, how in passes.items():
    run({"input_model": given, "output_dir": f"olive/{name}", "passes": {"only": {"type": name, **how}}})
