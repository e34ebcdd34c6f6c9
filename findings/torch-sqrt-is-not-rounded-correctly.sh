#!/bin/sh
# IEEE 754 asks that a square root is rounded correctly, and NumPy's is. torch.sqrt of float32 on a CPU is off by a unit in
# the last place for a fifth of all values, also where there is but one.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6 || exit 4
"$folder/env/bin/python" - <<'PYTHON'
from pathlib import Path

import numpy as np
import torch

x = np.random.default_rng(0).uniform(1, 4, 2**20).astype(np.float32)
right = np.sqrt(x.astype(np.float64)).astype(np.float32)  # of float32, float64 has more than twice the bits
seen = torch.from_numpy(x).sqrt().numpy()
by_numpy = np.sqrt(x)
units = int(np.abs(seen.view(np.int32) - right.view(np.int32)).max())
share = float((seen != right).mean())
print(f"torch {torch.__version__}, numpy {np.__version__}")
print(f"expected: no value of {len(x):,} off, as by NumPy ({int((by_numpy != right).sum())}); "
      f"seen: {share:.0%} off, by at most {units} unit")
if share == 0:
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text(encoding="utf-8") if cpu.exists() else ""
    if "AuthenticAMD" not in flags or " avx512f" in flags:
        print("this was seen on a processor of AMD with AVX2 and without AVX-512; here it is another one")
        raise SystemExit(3)
raise SystemExit(None if share > 0.05 and units == 1 and (by_numpy == right).all() else "this has changed")
PYTHON
