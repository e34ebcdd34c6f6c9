import onnx
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

for form in QuantFormat:
    made = MatMulNBitsQuantizer(onnx.load("net.onnx"), block_size=32, is_symmetric=True, quant_format=form)
    made.process()
    made.model.save_model_to_file(f"ort-int4-{form.name}.onnx")
