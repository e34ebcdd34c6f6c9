#!/bin/sh
# InstanceNormalization by ONNX Runtime's WebGPU provider loses its digits where values lie far from zero, as a variance
# does that is a mean of squares less the square of a mean; the provider of the CPU keeps them. WebGPU runs here on the
# CPU, by the SwiftShader of Debian's chromium.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    onnxruntime==1.32.0 onnxruntime-ep-webgpu==0.4.0 onnx==1.23.2 numpy==2.4.6 || exit 4
apt-get download chromium-common > apt.log 2>&1 || exit 4
dpkg-deb -x chromium-common_*.deb chromium || exit 4
export LD_LIBRARY_PATH="$folder/chromium/usr/lib/chromium"
export VK_ICD_FILENAMES="$folder/chromium/usr/lib/chromium/vk_swiftshader_icd.json"
export ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1
"$folder/env/bin/python" - <<'PYTHON'
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import onnxruntime_ep_webgpu as plugin

model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 2, 64] x) => (float[1, 2, 64] y) <float[2] scale = {1, 1}, float[2] bias = {0, 0}>
{ y = InstanceNormalization (x, scale, bias) }""")
onnx.checker.check_model(model, full_check=True)
onnxruntime.register_execution_provider_library(plugin.get_ep_name(), plugin.get_library_path())
devices = [one for one in onnxruntime.get_ep_devices() if one.ep_name == plugin.get_ep_name()]
options = onnxruntime.SessionOptions()
options.add_provider_for_devices(devices[:1], {})
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
sessions = {
    "WebGPU": onnxruntime.InferenceSession(model.SerializeToString(), options),
    "the CPU": onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]),
}
x = (1000 + np.random.default_rng(0).normal(size=(1, 2, 64))).astype(np.float32)
wide = x.astype(np.float64)
right = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)
off = {name: float(np.abs(session.run(None, {"x": x})[0] - right).max()) for name, session in sessions.items()}
print(f"onnxruntime {onnxruntime.__version__}, onnxruntime-ep-webgpu 0.4.0")
print("expected: values of about 1, right to a few digits by both")
print(f"seen: off by at most {off['WebGPU']:.1g} by WebGPU, by {off['the CPU']:.1g} by the CPU")
if off["WebGPU"] < 20 * off["the CPU"]:
    sys.exit("this has changed")
PYTHON
