"""PyTorch as it is written: one operator after the other."""

from typing import Any, ContextManager, Dict, Optional, cast

from runners.backends.base import Backend
from runners.contract.record import FactValue
from runners.workloads.base import Call


class Eager(Backend):
    """`model(x)` in inference mode."""

    preload = ("torch",)

    def build(self) -> Any:
        return self.workload.build(attention=str(self.options["attention"]))

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        return cast(Call, model)

    def execution(self) -> ContextManager[Any]:
        import torch

        return cast("ContextManager[Any]", torch.inference_mode())

    def facts(self) -> Dict[str, FactValue]:
        import torch

        return {"torch_threads": torch.get_num_threads()}
