"""Which Python the tests of this folder run trials with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

VARIABLE = "TAXMETER_GPU_PYTHON"
"""Names a Python with a torch that was built for the GPU of this machine; by default it is the one that runs pytest."""

_QUESTION = """
try:
    import torch
except ImportError:
    print("has no torch")
else:
    print("" if torch.cuda.is_available() else "has torch %s, which sees no CUDA device" % torch.__version__)
"""


@pytest.fixture(scope="session")
def gpu_python() -> Path:
    """A Python whose torch sees a GPU; skips where there is none."""
    python = Path(os.environ.get(VARIABLE, sys.executable))
    asked = subprocess.run([python, "-c", _QUESTION], capture_output=True, text=True, timeout=120)
    problem = asked.stdout.strip() if asked.returncode == 0 else asked.stderr.strip()
    if problem:
        pytest.skip(f"{python} {problem}; {VARIABLE} may name another Python")
    return python
