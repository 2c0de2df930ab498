"""Torch-TensorRT: the parts of an exported graph that TensorRT can take become engines, the rest stays with torch."""

import dataclasses
from typing import Any, Dict, Optional, cast

from runners.backends.preparation import preparing
from runners.backends.torch_module import TorchBackend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Unsupported

# Names of the submodules that Torch-TensorRT's partitioning makes
_ENGINE = "_run_on_acc"
_FALLBACK = "_run_on_gpu"


class TensorRt(TorchBackend):
    """`torch_tensorrt.compile` with `ir="dynamo"` for the shapes of the trial, TF32 off as in every other backend."""

    # Engines may run on a stream of their own
    capturable = False

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        try:
            import torch_tensorrt
        except (ImportError, OSError) as error:
            # OSError: it is installed, and the libraries of TensorRT are not
            raise Unsupported("torch_tensorrt cannot be imported: %s" % error) from error
        settings = {"disable_tf32": True, **self._precision(torch_tensorrt)}
        inputs = list(self.workload.inputs(0))
        with preparing("torch_tensorrt.compile"), self.execution():
            compiled = torch_tensorrt.compile(model, ir="dynamo", inputs=inputs, **settings)
        names = [name for name, _ in compiled.named_children()]
        self._engines = sum(name.startswith(_ENGINE) for name in names)
        self._fallbacks = sum(name.startswith(_FALLBACK) for name in names)
        if not self._engines:
            raise Unsupported("TensorRT took no part of the graph: all of it would run in torch")
        return cast(Call, compiled)

    def operations(self, call: Any, inputs: Any) -> Optional[Dict[str, int]]:
        # What an engine launches is hidden from torch
        return None

    def facts(self) -> Dict[str, FactValue]:
        return dict(super().facts(), tensorrt_engines=self._engines, tensorrt_fallbacks=self._fallbacks)

    def _precision(self, torch_tensorrt: Any) -> Dict[str, Any]:
        import torch

        known = {field.name for field in dataclasses.fields(torch_tensorrt.dynamo.CompilationSettings)}
        if "use_explicit_typing" in known:
            # The dtypes of the model hold
            return {"use_explicit_typing": True}
        return {"enabled_precisions": {getattr(torch, self.spec.dtype)}}
