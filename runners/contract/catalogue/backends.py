"""The backends with their options."""

from runners.contract.catalogue.entries import (
    CPU,
    CUDA,
    DEVICES,
    MODELS,
    SYNTHETIC,
    TORCH_DTYPES,
    BackendInfo,
    Choice,
)

BACKENDS = {
    "eager": BackendInfo(
        options={"attention": Choice(allowed=("sdpa", "eager"), default="sdpa")},
        frameworks=("torch",),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=DEVICES,
    ),
    "torchscript": BackendInfo(
        options={"freeze": Choice(allowed=(True, False), default=True)},
        frameworks=("torch",),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=DEVICES,
    ),
    "onnxruntime": BackendInfo(
        options={
            "exporter": Choice(allowed=("dynamo", "legacy"), default="dynamo"),
            "optimization": Choice(allowed=(0, 1, 2, 3), default=3),
        },
        frameworks=("torch", "onnxruntime", "onnx", "onnxscript"),
        families=MODELS,
        dtypes=("float32",),
        devices=(CPU,),
    ),
    "cuda_graphs": BackendInfo(
        options={"attention": Choice(allowed=("sdpa", "eager"), default="sdpa")},
        frameworks=("torch",),
        families=MODELS,
        dtypes=TORCH_DTYPES,
        devices=(CUDA,),
    ),
    "python": BackendInfo(options={}, frameworks=(), families=(SYNTHETIC,), dtypes=("float32",)),
}
