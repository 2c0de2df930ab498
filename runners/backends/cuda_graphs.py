"""Eager kernels, recorded once and replayed as one CUDA graph: no dispatch and one launch per call."""

from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence

from runners.backends.preparation import preparing
from runners.backends.torch_module import TorchBackend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs

WARMUPS = 11
"""Calls on a side stream before the capture, as PyTorch's own guide asks for: allocations and autotuning are done."""


@dataclass(frozen=True)
class Captured:
    """A graph with the tensors that it reads and writes."""

    graph: Any
    inputs: Sequence[Any]
    result: Any

    def __call__(self, *inputs: Any) -> Any:
        for static, given in zip(self.inputs, inputs):
            static.copy_(given)
        self.graph.replay()
        return self.result


def capture(call: Call, inputs: Inputs) -> Captured:
    """Records one call. The graph reads copies of the inputs.

    Raises:
        RuntimeError: the call does something that a graph cannot record, such as waiting for the device.
    """
    import torch

    static = tuple(tensor.clone() for tensor in inputs)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARMUPS):
            call(*static)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            result = call(*static)
    except Exception:
        # A capture that cannot be ended leaves its stream the current one
        torch.cuda.set_stream(before)
        raise
    return Captured(graph, static, result)


class CudaGraphs(TorchBackend):
    """A call copies its inputs to where the graph reads them and replays it."""

    # It is one already
    capturable = False

    def build(self) -> Any:
        return self.workload.build(attention=str(self.options["attention"]))

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        with preparing("CUDA graph capture"), self.execution():
            return capture(model, self.workload.inputs(0))

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        # One launch, whatever the graph holds
        return None

    def facts(self) -> Dict[str, FactValue]:
        return dict(super().facts(), cuda_graph_input_copy=True, cuda_graph_warmups=WARMUPS)
