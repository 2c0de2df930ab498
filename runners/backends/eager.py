"""PyTorch as it is written: one operator after the other."""

import contextlib
import time
from typing import Any, ContextManager, Dict, Iterator, Optional, cast

from runners.backends.attention_kernels import AUTO, attention_operators, pinned, require_pinned
from runners.backends.torch_module import TorchBackend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported


class Eager(TorchBackend):
    """`model(*inputs)` in inference mode."""

    @property
    def _kernel(self) -> str:
        return str(self.options["sdpa_kernel"])

    def build(self) -> Any:
        if self._kernel != AUTO and self.options["attention"] != "sdpa":
            raise Unsupported("sdpa_kernel %s chooses among kernels of SDPA: it needs attention sdpa" % self._kernel)
        return self.workload.build(attention=str(self.options["attention"]))

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        if self._kernel != AUTO:
            inputs = self.workload.inputs(0)
            with self.execution():
                require_pinned(self._kernel, lambda: model(*inputs))
        spin_ns = 1000 * int(self.options["spin_us"])
        return slowed(model, spin_ns) if spin_ns else cast(Call, model)

    def execution(self) -> ContextManager[Any]:
        return super().execution() if self._kernel == AUTO else self._pinned_execution()

    @contextlib.contextmanager
    def _pinned_execution(self) -> Iterator[None]:
        with super().execution(), pinned(self._kernel):
            yield

    def facts(self) -> Dict[str, FactValue]:
        return dict(super().facts(), sdpa_kernel=self._kernel)

    def counted(self, call: Call, inputs: Inputs) -> Dict[str, FactValue]:
        return {"attention_operators": attention_operators(lambda: call(*inputs))}


def slowed(call: Call, spin_ns: int) -> Call:
    """A call that the host is busy after, for a time that is known: what a measurement has to find."""

    def spun(*inputs: Any) -> Any:
        outputs = call(*inputs)
        end = time.perf_counter_ns() + spin_ns
        while time.perf_counter_ns() < end:
            pass
        return outputs

    return spun
