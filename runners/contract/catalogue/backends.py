"""The backends with their options."""

from typing import Dict

from runners.contract.catalogue.entries import (
    CPU,
    CUDA,
    DEVICES,
    LANGUAGE,
    MODELS,
    SYNTHETIC,
    TORCH_DTYPES,
    BackendInfo,
    Choice,
    IntegerRange,
    OptionInfo,
)

_ATTENTION = Choice(allowed=("sdpa", "eager"), default="sdpa")
_ONNX_EXPORT: Dict[str, OptionInfo] = {
    "attention": _ATTENTION,
    # auto: dynamo where this torch has it, else legacy
    "exporter": Choice(allowed=("auto", "dynamo", "legacy"), default="auto"),
    # fixed: an export for each batch, where an exporter cannot leave it open
    "batch": Choice(allowed=("open", "fixed"), default="open"),
}
_JAX = ("torch", "torchax", "jax", "jaxlib")
_EXECUTORCH = ("torch", "executorch", "torchao")
_TVM = ("torch", "apache-tvm", "apache-tvm-ffi")

# Each `compile_s` is the mean over `sweeps/paradigms.yaml`, whose rows have it as `artifact_s`
BACKENDS = {
    "eager": BackendInfo(
        options={
            "attention": _ATTENTION,
            "sdpa_kernel": Choice(allowed=("auto", "math", "flash", "efficient"), default="auto"),
            # Makes each call slower by so much, to see whether the method finds it
            "spin_us": IntegerRange(0, 10_000_000, default=0),
        },
        frameworks=("torch",),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=DEVICES,
    ),
    "torchscript": BackendInfo(
        options={
            "freeze": Choice(allowed=(True, False), default=True),
            "optimize_for_inference": Choice(allowed=(False, True), default=False),
        },
        frameworks=("torch",),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=DEVICES,
    ),
    "onnxruntime": BackendInfo(
        options={
            **_ONNX_EXPORT,
            "optimization": Choice(allowed=(0, 1, 2, 3), default=3),
            # auto: on a GPU only
            "io_binding": Choice(allowed=("auto", True, False), default="auto"),
            "spinning": Choice(allowed=(True, False), default=True),
            "cuda_graph": Choice(allowed=(True, False), default=False),
            # false, on a GPU: a call returns when its work is queued
            "synchronous": Choice(allowed=(True, False), default=True),
        },
        frameworks=("torch", "onnxruntime", "onnx", "onnxscript"),
        families=MODELS,
        dtypes=("float32", "float16"),
        devices=DEVICES,
    ),
    "openvino": BackendInfo(
        options=_ONNX_EXPORT,
        frameworks=("torch", "openvino", "onnx", "onnxscript"),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=(CPU,),
        compile_s=3.0,
    ),
    "cuda_graphs": BackendInfo(
        options={"attention": _ATTENTION},
        frameworks=("torch",),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=(CUDA,),
    ),
    "torch_compile": BackendInfo(
        options={
            "attention": _ATTENTION,
            "mode": Choice(
                allowed=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"), default="default"
            ),
            "freezing": Choice(allowed=(True, False), default=False),
        },
        frameworks=("torch",),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=DEVICES,
        compile_s=40.0,
    ),
    "aot_inductor": BackendInfo(
        options={"freezing": Choice(allowed=(True, False), default=False)},
        frameworks=("torch",),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=DEVICES,
        compile_s=34.0,
    ),
    "executorch": BackendInfo(
        options={},
        frameworks=_EXECUTORCH,
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=(CPU,),
        compile_s=32.0,
    ),
    "tvm": BackendInfo(
        # Seconds in which schedules are searched for; 0: untuned
        options={"tuning_budget_s": IntegerRange(0, 86_400, default=0)},
        frameworks=_TVM,
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=(CPU,),
        compile_s=50.0,
    ),
    "jax": BackendInfo(
        options={}, frameworks=_JAX, families=MODELS, dtypes=TORCH_DTYPES, devices=(CPU,), compile_s=4.0
    ),
    "jax_eager": BackendInfo(
        options={}, frameworks=_JAX, families=MODELS, dtypes=TORCH_DTYPES, devices=(CPU,), compile_s=11.0
    ),
    "sdpa_nested": BackendInfo(
        options={}, frameworks=("torch",), families=(LANGUAGE,), dtypes=TORCH_DTYPES, devices=DEVICES
    ),
    "fastpath": BackendInfo(
        options={"nested": Choice(allowed=(True, False), default=True)},
        frameworks=("torch",),
        families=(LANGUAGE,),
        dtypes=TORCH_DTYPES,
        devices=DEVICES,
    ),
    "dynamic_int8": BackendInfo(
        options={}, frameworks=("torch",), families=MODELS, dtypes=("float32",), is_narrower=True
    ),
    "tensorrt": BackendInfo(
        options={},
        frameworks=("torch", "torch_tensorrt", "tensorrt"),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=(CUDA,),
    ),
    "python": BackendInfo(options={}, frameworks=(), families=(SYNTHETIC,), dtypes=("float32",)),
}
