#!/bin/sh
# A CompiledModel that two threads call at once gives one what is computed of the other's input, without a word: its
# calls share one request. Requests of their own are right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet openvino==2026.4.1 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
import sys
import threading

import numpy as np
import openvino
from openvino import opset13

CALLS = 500
given = opset13.parameter([64, 64], np.float32)
model = openvino.Model([opset13.tanh(opset13.matmul(given, given, False, False))], [given])
compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1})
x = np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64)


def wrong(call):
    inputs, found, start = (x, x / 2), [0, 0], threading.Barrier(2)
    alone = [call(one) for one in inputs]

    def calls(place):
        start.wait()
        found[place] = sum(not np.array_equal(call(inputs[place]), alone[place]) for _ in range(CALLS))

    threads = [threading.Thread(target=calls, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


def own(one):
    return np.array(compiled.create_infer_request().infer([one])[0])


shared, apart = wrong(lambda one: np.array(compiled([one])[0])), wrong(own)
print(f"openvino {openvino.__version__}")
print(f"expected: of {2 * CALLS} calls 0 are wrong")
print(f"seen: {shared} are wrong, of requests of their own {apart}")
if not shared or apart:
    sys.exit("this has changed")
PYTHON
