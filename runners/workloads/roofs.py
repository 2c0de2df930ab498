"""The operators whose best rates are the roofs of a system; what they are for: `runners.contract.catalogue.roofs`."""

from typing import Any, Dict, Optional, Tuple

from runners.contract import WorkloadSpec
from runners.contract.record import FactValue
from runners.workloads import micro_modules
from runners.workloads.base import Inputs
from runners.workloads.micro_ops import MicroOp

_SMALL = 8


class Gemm(MicroOp):
    """Square matrices: each example times the one that is the weights."""

    def module(self, attention: Optional[str]) -> Any:
        return micro_modules.product(self.number("width"))

    def shape(self) -> Tuple[int, ...]:
        return self.number("width"), self.number("width")

    def shrunk(self) -> WorkloadSpec:
        return self.twin({"width": min(self.number("width"), _SMALL)})


class Triad(MicroOp):
    """The triad of STREAM, a = b + 3c: each example has arrays of its own."""

    def module(self, attention: Optional[str]) -> Any:
        return micro_modules.triad(self.spec.workload.batch, self.number("elements"))

    def shape(self) -> Tuple[int, ...]:
        return (self.number("elements"),)

    def example(self, generator: Any) -> Inputs:
        import torch

        return tuple(torch.randn(1, *self.shape(), generator=generator) for _ in range(2))

    def reference(self, index: int, model: Any, double: bool) -> Tuple[Any, ...]:
        # The next call writes into the same array
        return tuple(output.clone() for output in super().reference(index, model, double))

    def cost(self, model: Any) -> Dict[str, FactValue]:
        # What the counter finds in all versions that have it: it counts products of matrices, as for every workload
        return {"flops_per_example": 0, "macs_per_example": 0, "flops_problem": None}

    def shrunk(self) -> WorkloadSpec:
        return self.twin({"elements": min(self.number("elements"), _SMALL)})
