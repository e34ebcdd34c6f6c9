#!/bin/sh
# Sin and Cos of 1,000 and more in IREE, compiled for a generic processor: Cos is 2e-5 off at 1,000, and both are
# wrong in the second digit at 1e7, where float32 still holds all whole numbers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet \
    onnx==1.23.2 numpy==2.4.6 iree-base-compiler==3.13.0 iree-base-runtime==3.13.0 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import iree.runtime
import numpy as np
import onnx
import onnx.parser

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[4] x) => (float[4] s, float[4] c)
{ s = Sin(x) c = Cos(x) }
""")
onnx.checker.check_model(model, full_check=True)
folder = Path(sys.prefix)
onnx.save(model, folder / "net.onnx")
importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx", folder / "net.onnx", "-o", folder / "net.mlir"]
subprocess.run(importer, check=True)
target = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
compiler = [folder / "bin" / "iree-compile", folder / "net.mlir", *target, "--iree-llvmcpu-target-cpu=generic"]
subprocess.run([*compiler, "-o", folder / "net.vmfb"], check=True)
config = iree.runtime.Config("local-task")
module = iree.runtime.load_vm_module(iree.runtime.VmModule.mmap(config.vm_instance, str(folder / "net.vmfb")), config)
x = np.array([1, 1e3, 1e5, 1e7], np.float32)
sine, cosine = (value.to_host() for value in module.net(x))
exact = np.cos(x.astype(np.float64))
print(f"iree {version('iree-base-compiler')}")
print(f"expected: Cos of 1, 1e3, 1e5, 1e7: {exact.round(6)}")
print(f"seen: {cosine}, and Sin off by {np.abs(sine - np.sin(x.astype(np.float64))).max():.2f} at 1e7")
if abs(cosine[3] - exact[3]) < 1e-3:
    raise SystemExit("this has changed")
PYTHON
