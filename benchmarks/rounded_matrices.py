"""How wrong float32 becomes if layers round their inputs and weights: what the verification must notice.

The relative L2 error of the outputs, against the same model without rounding, for mantissas of 10 bits (TF32) and 7
bits (bfloat16). Run it from the project's root in the measured environment:

    PYTHONPATH=. python benchmarks/rounded_matrices.py
"""

from typing import Any

import torch

import runners.workloads.torchvision_import  # noqa: F401 - before torchvision, which lacks operators otherwise
from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.catalogue import WORKLOADS
from runners.workloads import make_workload

NAMES = ("tiny-bert", "bert-base", "distilbert", "resnet50", "vit-base-32", "op-feedforward")
MANTISSAS = {"tf32": 10, "bfloat16": 7}
FLOAT32_MANTISSA = 23


def rounded(tensor: Any, bits: int) -> Any:
    """The nearest numbers with a mantissa of so many bits."""
    dropped = FLOAT32_MANTISSA - bits
    pattern = tensor.contiguous().view(torch.int32) + (1 << (dropped - 1))
    return (pattern & ~((1 << dropped) - 1)).view(torch.float32)


def error(name: str, bits: int) -> float:
    """Relative L2 error of the worst output."""
    info = WORKLOADS[name]
    shape = WorkloadSpec(name, 1, info.sequence_length, info.image_size)
    workload = make_workload(TrialSpec(shape, BackendSpec("eager", {}), "float32", "cpu", 1, 3, Protocol()))
    model, inputs = workload.build(), workload.inputs(0)
    right = model(*inputs)
    for layer in model.modules():
        if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)):
            layer.weight.data = rounded(layer.weight.data, bits)
            layer.register_forward_pre_hook(lambda _, given: (rounded(given[0], bits), *given[1:]))
    return max(float((got - wanted).norm() / wanted.norm()) for got, wanted in zip(model(*inputs), right, strict=True))


if __name__ == "__main__":
    with torch.inference_mode():
        for name in NAMES:
            print(name, *(f"{kind} {error(name, bits):.2g}" for kind, bits in MANTISSAS.items()))
