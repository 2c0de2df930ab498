"""Colours that figures and pages share: one per backend everywhere, for colour-blind people and grey print, too.

The eight hues are those of Okabe and Ito, Color Universal Design (2008), which differ in lightness too; its yellow is
darkened, because on white paper nobody sees it. Lines differ in their markers as well, so that no colour is needed to
read them.
"""

from collections.abc import Mapping
from typing import Final

BLACK: Final = "#000000"
BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
GREEN: Final = "#009E73"
VERMILION: Final = "#D55E00"
SKY: Final = "#56B4E9"
PURPLE: Final = "#CC79A7"
OLIVE: Final = "#9A8F00"
GREY: Final = "#7F7F7F"
PALE: Final = "#D9D9D9"
"""Of what is missing."""

CATEGORICAL: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, OLIVE, BLACK, GREY)
"""For values without a colour of their own, in this order."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
"""Of the same values, as matplotlib names them."""

_VIRIDIS: Final = ("#440154", "#3B528B", "#21918C", "#4DB36A", "#B8A800")

_BACKENDS: Final[Mapping[str, str]] = {
    "eager": BLUE,
    "torchscript": ORANGE,
    "onnxruntime": GREEN,
    "cuda_graphs": VERMILION,
    "onnxruntime(cuda_graph=True)": PURPLE,
    "torch_compile": SKY,
    "aot_inductor": SKY,
    "executorch": PURPLE,
    "tvm": VERMILION,
    "jax": OLIVE,
    "jax_eager": BLACK,
    "openvino": OLIVE,
    "fastpath": PURPLE,
    "sdpa_nested": BLACK,
    "tensorrt": BLACK,
    "dynamic_int8": GREY,
}
_LABELS: Final[Mapping[str, str]] = {
    "eager": "PyTorch",
    "torchscript": "TorchScript",
    "onnxruntime": "ONNX Runtime",
    "cuda_graphs": "CUDA graphs",
    "onnxruntime(cuda_graph=True)": "ONNX Runtime, CUDA graphs",
    "torch_compile": "torch.compile",
    "aot_inductor": "AOTInductor",
    "executorch": "ExecuTorch",
    "tvm": "TVM",
    "jax": "JAX",
    "jax_eager": "JAX without jit",
    "openvino": "OpenVINO",
    "fastpath": "fast path, nested",
    "sdpa_nested": "nested tensors",
    "tensorrt": "TensorRT",
    "dynamic_int8": "dynamic int8",
}


def backend_colour(backend: str) -> str:
    """The colour of a backend, everywhere the same.

    Args:
        backend: with its options that are not at defaults, as the axis `backend` has it; unknown options have the
            colour of the backend alone.
    """
    return _BACKENDS.get(backend) or _BACKENDS.get(backend.partition("(")[0], GREY)


def backend_label(backend: str) -> str:
    """A backend as people name it: `onnxruntime` is ONNX Runtime."""
    name, _, options = backend.partition("(")
    if backend in _LABELS or not options:
        return _LABELS.get(backend, backend)
    return f"{_LABELS.get(name, name)} ({options}"


def categorical(number: int) -> str:
    """The colour of the n-th of several things, counted from 0; from the tenth on they repeat."""
    return CATEGORICAL[number % len(CATEGORICAL)]


def marker(number: int) -> str:
    """The marker of the n-th of several things, as matplotlib names it."""
    return MARKERS[number % len(MARKERS)]


def sequential(number: int, count: int) -> str:
    """The colour of the n-th of several sizes, counted from 0, from dark for the smallest to light for the largest.

    After viridis (van der Walt and Smith, 2015), whose lightness grows evenly; its yellow is darkened for white paper.
    """
    return _VIRIDIS[round(number * (len(_VIRIDIS) - 1) / max(count - 1, 1))]
