"""PyTorch as it is written: one operator after the other."""

from typing import Any, Optional, cast

from runners.backends.torch_module import TorchBackend
from runners.workloads.base import Call


class Eager(TorchBackend):
    """`model(*inputs)` in inference mode."""

    def build(self) -> Any:
        return self.workload.build(attention=str(self.options["attention"]))

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        return cast(Call, model)
