"""A traced PyTorch graph, run by the TorchScript interpreter."""

import warnings
from typing import Any, ContextManager, Dict, Optional, cast

from runners.backends.base import Backend
from runners.contract.record import FactValue
from runners.workloads.base import Call


class TorchScript(Backend):
    """`torch.jit.trace`, frozen by default. Scripting fails for current models, so it is not offered."""

    preload = ("torch",)

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        import torch

        example = self.workload.inputs(0)
        with torch.no_grad(), warnings.catch_warnings():
            # TorchScript is deprecated as a whole, and the tracer warns of each Python branch that it fixes:
            # both are known, and the outputs are verified
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit")
            warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
            traced = torch.jit.trace(model, (example,), check_trace=False)
            if self.options["freeze"]:
                traced = torch.jit.freeze(traced)
        self._nodes = sum(1 for _ in traced.inlined_graph.nodes())
        return cast(Call, traced)

    def execution(self) -> ContextManager[Any]:
        import torch

        return cast("ContextManager[Any]", torch.inference_mode())

    def facts(self) -> Dict[str, FactValue]:
        import torch

        return {"torch_threads": torch.get_num_threads(), "graph_nodes": self._nodes}
