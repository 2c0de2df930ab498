"""`torch.compile` with the Inductor."""

import os
from typing import Any, Dict, List, Optional, Tuple, cast

from runners.backends import inductor
from runners.backends.preparation import preparing
from runners.backends.torch_module import TorchBackend
from runners.contract.catalogue.entries import CPU
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported, Workload

_CACHE = "inductor"
_WITHOUT_GRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
"""The modes that promise CUDA graphs, and what each is without them."""


class TorchCompile(TorchBackend):
    """Shapes are static, graph breaks are allowed and counted.

    The artifact is the Inductor's cache, filled by a first call in a process of its own: `artifact_s` holds the cold
    compilation, and in the process that measures the first call finds the compiled code, which it still traces and
    loads. The facts tell hits from misses.
    """

    has_artifact = True

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self._mode = str(self.options["mode"])
        self._promises_graphs = self._mode in _WITHOUT_GRAPHS
        # A graph cannot record the replay of another
        self.capturable = not self._promises_graphs
        self._attempts: List[int] = []

    def artifact_identity(self) -> Dict[str, Any]:
        # The compiler writes the number of threads into the code
        return {**self.options, "threads": self.spec.threads, "device": self.spec.device}

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        import torch

        self._refuse()
        self._freeze()
        # Not the threads of this process, which may use all cores for the rest of its work
        torch.set_num_threads(self.spec.threads)
        inductor.configure(os.path.join(directory, _CACHE))
        model = self.build()
        with preparing("torch.compile"), self.execution():
            self._compiled(model)(*self.workload.inputs(0))
        return {"artifact_bytes": inductor.bytes_of(directory)}

    def build(self) -> Any:
        return self.workload.build(attention=str(self.options["attention"]))

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        self._refuse()
        assert artifact is not None
        self._freeze()
        inductor.configure(os.path.join(artifact, _CACHE))
        return self._compiled(model)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        self._attempts.append(inductor.attempts())
        return super().outputs(result)

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        count = inductor.launches(lambda: call(*inputs)) if self.spec.device == CPU else None
        # Their names are numbers in the order of compilation
        return None if count is None else {"launch": count}

    def examined(self) -> Dict[str, FactValue]:
        facts = inductor.compile_facts()
        # Outputs are looked at as often before warm-up and timing as after: what was compiled between the two
        facts["compiled_after_verification"] = self._attempts[-1] - self._attempts[len(self._attempts) // 2 - 1]
        if self._promises_graphs:
            facts.update(inductor.cuda_graph_facts())
        return facts

    def _refuse(self) -> None:
        import torch

        if not hasattr(torch, "compile"):
            raise Unsupported("torch %s has no torch.compile" % torch.__version__)
        if self._promises_graphs and self.spec.device == CPU:
            raise Unsupported(
                "mode %s promises CUDA graphs, which a CPU does not have; use %s"
                % (self._mode, _WITHOUT_GRAPHS[self._mode])
            )

    def _freeze(self) -> None:
        """Makes constants of the weights, so that they can be folded and laid out anew, where that is asked for."""
        from torch._inductor import config

        config.freezing = bool(self.options["freezing"])

    def _compiled(self, model: Any) -> Call:
        import torch

        compiled = cast(Call, torch.compile(model, mode=self._mode, dynamic=False))
        if not self._promises_graphs:
            return compiled
        mark_step_begin = torch.compiler.cudagraph_mark_step_begin

        def call(*inputs: Any) -> Any:
            # The outputs of the call before may be overwritten from here on
            mark_step_begin()
            return compiled(*inputs)

        return call
