"""ExecuTorch on a CPU: `torch.export`, lowered to XNNPACK where it has kernels, run by ExecuTorch's own runtime."""

import json
import os
from collections import Counter
from typing import Any, Dict, Optional, Tuple, cast

from runners.backends.base import Backend
from runners.backends.inductor import bytes_of
from runners.backends.preparation import preparing
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported

_PROGRAM = "model.pte"
_OPERATIONS = "operations.json"
"""What the program executes by name, and which of the graph's operators XNNPACK took: nothing tells it at run time."""


class ExecuTorch(Backend):
    """A program of kernel calls and of subgraphs that are delegated to XNNPACK as a whole."""

    preload = ("torch", "executorch.runtime")
    has_artifact = True

    def host_threads(self) -> int:
        # torch computes nothing here, and its threads would compete
        return 1

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        import torch
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.devtools.backend_debug import get_delegation_info
        from executorch.exir import to_edge_transform_and_lower

        model, inputs = self.workload.build(), self.workload.inputs(0)
        with torch.no_grad():
            with preparing("torch.export"):
                exported = torch.export.export(model, tuple(inputs), strict=False)
            with preparing("ExecuTorch"):
                lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
                taken = get_delegation_info(lowered.exported_program().graph_module)
                program = lowered.to_executorch()
        with open(os.path.join(directory, _PROGRAM), "wb") as file:
            file.write(program.buffer)
        found = {
            "executed": executed(program.executorch_program.execution_plan[0]),
            "delegated": taken.num_delegated_nodes,
            "operators": taken.num_delegated_nodes + taken.num_non_delegated_nodes,
        }
        with open(os.path.join(directory, _OPERATIONS), "w", encoding="utf-8") as file:
            json.dump(found, file)
        return {"artifact_bytes": bytes_of(directory)}

    def build(self) -> None:
        return None

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Runtime, Verification

        assert artifact is not None
        # Once it has computed, its pool of threads keeps its size
        portable_lib._unsafe_reset_threadpool(self.spec.threads)
        self._threads = int(portable_lib._threadpool_get_thread_count())
        if self._threads != self.spec.threads:
            raise Unsupported("ExecuTorch has %d threads, not %d" % (self._threads, self.spec.threads))
        with preparing("ExecuTorch"):
            path = os.path.join(artifact, _PROGRAM)
            # The method lives as long as the program that it is part of
            self._program = Runtime.get().load_program(path, verification=Verification.Minimal)
            method = self._program.load_method("forward")._method
        with open(os.path.join(artifact, _OPERATIONS), encoding="utf-8") as file:
            self._found: Dict[str, Any] = json.load(file)
        # `Method.execute` copies the outputs; here that is done outside of the timed region, as everywhere
        return lambda *inputs: method(inputs, clone_outputs=False)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        return tuple(tensor.detach().clone() for tensor in result)

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        return cast("Dict[str, int]", self._found["executed"])

    def facts(self) -> Dict[str, FactValue]:
        delegates = self._found["executed"].get("delegate", 0)
        return {
            "executorch_threads": self._threads,
            "torch_threads": self.host_threads(),
            "executorch_delegates": delegates,
            "executorch_kernels": sum(self._found["executed"].values()) - delegates,
            "executorch_delegated_share": self._found["delegated"] / self._found["operators"],
        }


def executed(plan: Any) -> Dict[str, int]:
    """What one run of a program executes: calls of kernels by operator, and delegates.

    Moves, jumps and releases of memory between them are left out.

    Args:
        plan: the `ExecutionPlan` of a method.
    """
    names = []
    for chain in plan.chains:
        for instruction in chain.instructions:
            arguments = instruction.instr_args
            kind = type(arguments).__name__
            if kind == "KernelCall":
                operator = plan.operators[arguments.op_index]
                names.append("%s.%s" % (operator.name, operator.overload) if operator.overload else operator.name)
            elif kind == "DelegateCall":
                names.append("delegate")
    return Counter(names)
