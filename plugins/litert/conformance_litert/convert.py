"""Convert ONNX files by onnx2tf: a program for the Python that has it, which needs nothing of the suite.

Each line that it reads is JSON: a folder with ``model.onnx``, the names of its inputs, and the seconds after which it
is ended. Each line that it writes is 0 or 1; the folder then has ``out``, and ``log`` with what was printed.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import onnx2tf

answers = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    folder, names, seconds = json.loads(line)
    os.chdir(folder)
    with Path("log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    failed = 0
    signal.alarm(seconds)
    try:
        onnx2tf.convert(
            input_onnx_file_path="model.onnx", output_folder_path="out", verbosity="error",
            keep_shape_absolutely_input_names=names or None,
        )  # fmt: skip
    except BaseException:  # it ends its process by SystemExit
        traceback.print_exc()
        failed = 1
    signal.alarm(0)
    sys.stdout.flush()
    print(failed, file=answers, flush=True)
