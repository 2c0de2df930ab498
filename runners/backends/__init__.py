"""How a workload is executed. The table is lazy: a name's module is imported only when a trial asks for it."""

import importlib
from typing import Type, cast

from runners.backends.base import Backend
from runners.workloads.base import Workload

BACKENDS = {
    "eager": "runners.backends.eager:Eager",
    "torchscript": "runners.backends.torchscript:TorchScript",
    "onnxruntime": "runners.backends.onnxruntime:OnnxRuntime",
    "openvino": "runners.backends.openvino:OpenVino",
    "cuda_graphs": "runners.backends.cuda_graphs:CudaGraphs",
    "torch_compile": "runners.backends.torch_compile:TorchCompile",
    "aot_inductor": "runners.backends.aot_inductor:AotInductor",
    "executorch": "runners.backends.executorch:ExecuTorch",
    "tvm": "runners.backends.tvm:Tvm",
    "jax": "runners.backends.jax:Jax",
    "jax_eager": "runners.backends.jax:JaxEager",
    "sdpa_nested": "runners.backends.sdpa_nested:SdpaNested",
    "fastpath": "runners.backends.fastpath:FastPath",
    "dynamic_int8": "runners.backends.dynamic_int8:DynamicInt8",
    "tensorrt": "runners.backends.tensorrt:TensorRt",
    "python": "runners.backends.python:Python",
}


def backend_class(name: str) -> Type[Backend]:
    """Imports the class behind a name of the table."""
    module, _, attribute = BACKENDS[name].partition(":")
    return cast(Type[Backend], getattr(importlib.import_module(module), attribute))


def make_backend(workload: Workload) -> Backend:
    """The backend of a workload's trial; nothing is loaded yet."""
    return backend_class(workload.spec.backend.name)(workload)
