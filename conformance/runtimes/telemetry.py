"""Switch off what ONNX Runtime tells its makers; to be imported before ``onnxruntime``.

From 1.29 on its packages for Linux and macOS note what is loaded and what fails in a database in the home folder, and
send it from threads of their own, unless ``ORT_DISABLE_TELEMETRY`` or ``CI`` is set (microsoft/onnxruntime, pull
request 27379). The models of others are nobody's business, and a fork has those threads' locks without the threads.
"""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
