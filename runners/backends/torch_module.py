"""What the backends share that call a torch module in this process."""

from typing import Any, ContextManager, Dict, Optional, Tuple, cast

from runners.backends.base import Backend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs


class TorchBackend(Backend):
    """Calls are made in inference mode; outputs are copied to the CPU."""

    preload = ("torch",)
    capturable = True

    def execution(self) -> ContextManager[Any]:
        import torch

        return cast("ContextManager[Any]", torch.inference_mode())

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        return tuple(tensor.detach().to("cpu", copy=True) for tensor in result)

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        from runners.examination.calls import count_aten_calls

        return count_aten_calls(lambda: call(*inputs))

    def facts(self) -> Dict[str, FactValue]:
        import torch

        return {"torch_threads": torch.get_num_threads()}
