"""Import this before ONNX Runtime.

1.13 looks for CUDA's libraries when it is imported, and if it finds none it sets ORT_CUDA_UNAVAILABLE and never looks
again. So those that were installed as Python packages, or came with torch, are loaded before.
"""

from runners.backends.onnxruntime_libraries import load_packaged_cuda, looks_for_cuda_when_imported

if looks_for_cuda_when_imported():
    load_packaged_cuda()

import onnxruntime  # noqa: F401 - after what it looks for
