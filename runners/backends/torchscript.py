"""A traced PyTorch graph, run by the TorchScript interpreter."""

import warnings
from typing import Any, Dict, Optional, cast

from runners.backends.preparation import preparing
from runners.backends.torch_module import TorchBackend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Unsupported


class TorchScript(TorchBackend):
    """`torch.jit.trace`, frozen by default. Scripting fails for current models, so it is not offered.

    Freezing makes constants of the weights; `optimize_for_inference` then folds and reorders for the device.
    """

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        import torch

        freeze, optimize = self.options["freeze"], self.options["optimize_for_inference"]
        if optimize and not freeze:
            raise Unsupported("optimize_for_inference works on a frozen graph: it needs freeze true")
        example = self.workload.inputs(0)
        with torch.no_grad(), warnings.catch_warnings():
            # TorchScript is deprecated as a whole, and the tracer warns of each Python branch that it fixes:
            # both are known, and the outputs are verified
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.jit")
            warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
            with preparing("torch.jit.trace"):
                traced = torch.jit.trace(model, example, check_trace=False)
            if freeze:
                with preparing("torch.jit.freeze"):
                    traced = torch.jit.freeze(traced)
            if optimize:
                with preparing("torch.jit.optimize_for_inference"):
                    traced = torch.jit.optimize_for_inference(traced)
        self._nodes = sum(1 for _ in traced.inlined_graph.nodes())
        return cast(Call, traced)

    def facts(self) -> Dict[str, FactValue]:
        return dict(super().facts(), graph_nodes=self._nodes)
