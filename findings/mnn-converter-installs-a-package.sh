#!/bin/sh
# MNN's converter for Python calls pip to install a package for its log while it is imported, and goes on without it; the
# command pip is replaced here by one that only notes how it is called.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet MNN==3.6.1 onnx==1.23.2 numpy==2.4.6 || exit 4
mkdir "$folder/noted"
printf '#!/bin/sh\necho "pip $*" >> "%s/calls"\n' "$folder/noted" > "$folder/noted/pip"
chmod +x "$folder/noted/pip"
"$folder/env/bin/python" - <<'PYTHON'
import onnx
import onnx.parser

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
net (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }
""")
onnx.checker.check_model(model, full_check=True)
onnx.save(model, "net.onnx")
PYTHON
PATH="$folder/noted:$PATH" "$folder/env/bin/python" -m MNN.tools.mnnconvert -f ONNX --modelFile net.onnx \
    --MNNModel net.mnn --bizCode finding > log 2>&1 || true
echo "MNN 3.6.1, onnx 1.23.2"
echo "expected: net.onnx is converted, and pip is not called"
echo "seen: $(test -s net.mnn && echo converted || echo not converted); called: $(cat noted/calls 2>/dev/null || echo nothing)"
test -s net.mnn && grep -q "install" noted/calls || { echo "this has changed"; exit 1; }
