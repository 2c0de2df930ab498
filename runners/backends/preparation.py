"""What a failure means before a model can be called: the framework cannot serve it, which is no crash."""

import contextlib
import traceback
from typing import Iterator

from runners.workloads.base import Unsupported

OUT_OF_MEMORY = (
    *("out of memory", "can't allocate memory", "Failed to allocate memory"),
    # Of ONNX Runtime's arena, and of libraries that have no memory left for a handle or a workspace
    *("is smaller than requested bytes", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)
"""What torch and ONNX Runtime say; neither raises MemoryError."""

REFUSALS = ("cuFFT only supports dimensions whose sizes are powers of two when computing in half precision",)
"""What torch says where a library has no kernel for a dtype or shape: no crash, wherever it is said."""


@contextlib.contextmanager
def preparing(what: str) -> Iterator[None]:
    """Turns what the block raises into a refusal: `<what> failed: <the error's first line>`.

    Running out of memory stays what it is, a missing module too: both have names of their own.

    Args:
        what: the step, such as `torch.jit.trace`.

    Raises:
        Unsupported: the step failed. The traceback goes to the trial's log.
    """
    try:
        yield
    except (Unsupported, MemoryError, ModuleNotFoundError):
        raise
    except Exception as error:
        if any(text in str(error) for text in OUT_OF_MEMORY):
            raise
        traceback.print_exc()
        raise Unsupported("%s failed: %s" % (what, first_line(error))) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message that says something, or its type if there is none."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)
