"""What models with convolutions share that come from a library."""

from typing import Any, Dict, Tuple

from runners.contract.record import FactValue
from runners.workloads.construction import missing_kernels_unsupported
from runners.workloads.tensors import TensorWorkload

TWIN_BATCH = 2
"""Examples in a call of a shrunk twin.

torch has two implementations of convolution for CPUs. Large inputs go to oneDNN, lone small ones to torch's own,
whose dispatch costs a third as much. A pair goes to oneDNN whatever its size, as the trial's convolutions do.
"""


class LibraryModel(TensorWorkload):
    """A model in two sizes, some of whose operators may not exist in the trial's dtype."""

    @property
    def is_shrunk(self) -> bool:
        """Whether this is the twin that measures the dispatch floor."""
        return self.options["size"] == "shrunk"

    # Whatever the backend, a trial begins with eager calls in its dtype: they find what torch has no kernel for

    def reference(self, index: int, model: Any, double: bool) -> Tuple[Any, ...]:
        with missing_kernels_unsupported(self.spec.workload.name, self.spec.dtype):
            return super().reference(index, model, double)

    def cost(self, model: Any) -> Dict[str, FactValue]:
        with missing_kernels_unsupported(self.spec.workload.name, self.spec.dtype):
            return super().cost(model)
