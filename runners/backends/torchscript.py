"""A traced PyTorch graph, run by the TorchScript interpreter."""

import warnings
from typing import Any, Dict, Optional, cast

from runners.backends.torch_module import TorchBackend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs


class TorchScript(TorchBackend):
    """`torch.jit.trace`, frozen by default. Scripting fails for current models, so it is not offered."""

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        import torch

        example = self.workload.inputs(0)
        with torch.no_grad(), warnings.catch_warnings():
            # TorchScript is deprecated as a whole, and the tracer warns of each Python branch that it fixes:
            # both are known, and the outputs are verified
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit")
            warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
            traced = torch.jit.trace(model, example, check_trace=False)
            if self.options["freeze"]:
                traced = torch.jit.freeze(traced)
        self._nodes = sum(1 for _ in traced.inlined_graph.nodes())
        return cast(Call, traced)

    def operations(self, call: Call, inputs: Inputs) -> Optional[int]:
        return self._nodes

    def facts(self) -> Dict[str, FactValue]:
        return dict(super().facts(), graph_nodes=self._nodes)
