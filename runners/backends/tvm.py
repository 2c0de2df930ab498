"""Apache TVM on a CPU: `torch.export`, compiled ahead of time by Relax into a library, run by its virtual machine."""

import json
import os
import re
from typing import Any, Dict, Optional, Tuple, cast

from runners.backends.base import Backend
from runners.backends.inductor import bytes_of
from runners.backends.preparation import preparing
from runners.backends.tvm_schedules import search
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported

_LIBRARY = "model.so"
_TUNING = "tuning"
"""Where the log of a search is kept."""
_FOUND = "found.json"
"""How many kernels the program calls, and how many were tuned: the library does not tell."""
_CALL = re.compile(r"^ +call(?! +vm\.builtin\.)", re.MULTILINE)
"""A kernel or library call; the machine's own instructions check, allocate and release."""
_ALL_CORES = 1
"""How TVM's pool chooses its cores: the fastest ones first, as many as it has threads."""


class Tvm(Backend):
    """A program of the virtual machine, whose kernels TVM has generated: untuned ones, unless there is a budget."""

    preload = ("torch", "tvm")
    has_artifact = True

    def artifact_identity(self) -> Dict[str, Any]:
        # The target names the number of cores
        return {**self.options, "threads": self.spec.threads}

    def host_threads(self) -> int:
        # torch computes nothing here, and its threads would compete
        return 1

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        self._set_threads()
        import torch
        import tvm
        from tvm.relax.frontend.torch import from_exported_program

        model, inputs = self.workload.build(), self.workload.inputs(0)
        with torch.no_grad():
            with preparing("torch.export"):
                exported = torch.export.export(model, tuple(inputs), strict=False)
            with preparing("TVM's import"):
                module = from_exported_program(exported)
        found: Dict[str, Any] = {}
        with preparing("TVM"):
            target = self._target()
            with target:
                module = _fused(module)
            budget_s = cast(int, self.options["tuning_budget_s"])
            if budget_s:
                kept = os.path.join(directory, _TUNING)
                tuning = search(module, target, kept, self.spec.threads, budget_s)
                module = tuning.module
                found["tuning"] = {
                    "tvm_kernels": tuning.kernels,
                    "tvm_kernels_tuned": tuning.tuned,
                    "tvm_candidates": tuning.candidates,
                }
            program = tvm.compile(module, target=target)
            program.export_library(os.path.join(directory, _LIBRARY))
            # The names of fused kernels are numbered
            found["operations"] = {"launch": launches(program.as_text())}
        with open(os.path.join(directory, _FOUND), "w", encoding="utf-8") as file:
            json.dump(found, file)
        return {"artifact_bytes": bytes_of(directory)}

    def build(self) -> None:
        return None

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        assert artifact is not None
        self._set_threads()
        import tvm
        from tvm import relax

        tvm.get_global_func("runtime.config_threadpool")(_ALL_CORES, self.spec.threads)
        self._threads = int(tvm.get_global_func("runtime.NumThreads")())
        if self._threads != self.spec.threads:
            raise Unsupported("TVM has %d threads, not %d" % (self._threads, self.spec.threads))
        with preparing("TVM"):
            program = tvm.runtime.load_module(os.path.join(artifact, _LIBRARY))
            # What is called lives as long as the machine that it is part of
            self._machine = relax.VirtualMachine(program, tvm.cpu())
        with open(os.path.join(artifact, _FOUND), encoding="utf-8") as file:
            self._found: Dict[str, Any] = json.load(file)
        with preparing("TVM"):
            return cast(Call, self._machine["main"])

    def native(self, inputs: Inputs) -> Inputs:
        import tvm

        return tuple(tvm.runtime.from_dlpack(tensor.contiguous()) for tensor in inputs)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        import torch

        return tuple(torch.from_dlpack(tensor).clone() for tensor in result)

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        return cast("Dict[str, int]", self._found["operations"])

    def facts(self) -> Dict[str, FactValue]:
        tuning: Dict[str, FactValue] = self._found.get("tuning", {})
        return {
            "tvm_threads": self._threads,
            "torch_threads": self.host_threads(),
            "tvm_tuned": bool(tuning),
            **tuning,
        }

    def _set_threads(self) -> None:
        # Asked once, when the pool is made, before the variable of OpenMP
        os.environ["TVM_NUM_THREADS"] = str(self.spec.threads)
        # The pool would pin its threads to cores that are not the trial's
        os.environ["TVM_BIND_THREADS"] = "0"

    def _target(self) -> Any:
        import tvm

        processor = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUName")()
        return tvm.target.Target({"kind": "llvm", "mcpu": processor, "num-cores": self.spec.threads})


def launches(listing: str) -> int:
    """Kernels and library calls of one call of the model."""
    return len(_CALL.findall(listing))


def _fused(module: Any) -> Any:
    """The kernels of an inference, fused as TVM's own pipelines for tuning do it before they tune."""
    import tvm
    from tvm import relax

    steps = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.get_pipeline("zero"),
    ]
    return tvm.transform.Sequential(steps)(module)
