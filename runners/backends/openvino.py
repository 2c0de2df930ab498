"""OpenVINO on an exported graph, on the CPU.

The graph is in float32 whatever the dtype of the trial, with weights and inputs that were rounded to that dtype before:
OpenVINO itself decides per operator where to compute in less, and is told how far it may go. Left alone it would take
bfloat16 wherever the CPU has it, also for float32.
"""

from collections import Counter
from typing import Any, Dict, List, Optional, Sequence, Tuple

from runners.backends.onnx_backend import OnnxBackend, model_path
from runners.backends.onnx_export import input_names, memory_ran_out
from runners.contract.record import FactValue
from runners.examination.counts import counts_as_text
from runners.workloads.base import Call, Inputs, Unsupported

_DEVICE = "CPU"
_CAPABILITY = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}
_PRECISION = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_NOT_COMPUTING = ("Const", "Input", "Output")
_MAX_REASON = 300
_PLACES = ("Exception from ", "Check '")


class OpenVino(OnnxBackend):
    """One request on one stream, compiled for latency and for the batch of the trial."""

    preload = ("openvino",)

    def require(self) -> None:
        import openvino

        require_capability(openvino.Core().get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES"), self.spec.dtype)

    def graph_dtype(self) -> str:
        return "float32"

    def exportable(self, model: Any, inputs: Inputs) -> Tuple[Any, Inputs]:
        return model.float(), _in_float32(inputs)

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        import openvino

        assert artifact is not None
        self.require()
        core = openvino.Core()
        try:
            graph = core.read_model(model_path(artifact))
            self.check_batch([_sizes(port) for port in graph.inputs])
            graph.reshape({port: [self.spec.workload.batch, *_sizes(port)[1:]] for port in graph.inputs})
            self._compiled = core.compile_model(graph, _DEVICE, self._config())
        except RuntimeError as error:
            if memory_ran_out(error):
                raise
            raise Unsupported("OpenVINO %s refuses the graph: %s" % (openvino.__version__, reason_of(error))) from error
        self._check_taken()
        self._request = self._compiled.create_infer_request()
        self._kept: List[Any] = []
        return self._call

    def native(self, inputs: Inputs) -> Inputs:
        import openvino

        by_name = dict(zip(input_names(len(inputs)), _in_float32(inputs)))
        arrays = [by_name[port.any_name].numpy() for port in self._compiled.inputs]
        # The tensors share the memory of the arrays
        self._kept.append(arrays)
        return tuple(openvino.Tensor(array, shared_memory=True) for array in arrays)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        import torch

        dtype = getattr(torch, self.spec.dtype)
        tensors = [torch.from_numpy(result.get_output_tensor(i).data) for i in range(len(self._compiled.outputs))]
        return tuple(t.to(dtype if t.is_floating_point() else None, copy=True) for t in tensors)

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        return Counter(node["layerType"] for node in self._nodes())

    def facts(self) -> Dict[str, FactValue]:
        import openvino

        compiled = self._compiled
        return {
            "openvino_version": openvino.__version__,
            "openvino_precision": compiled.get_property("INFERENCE_PRECISION_HINT").to_string(),
            "openvino_threads": int(compiled.get_property("INFERENCE_NUM_THREADS")),
            "openvino_streams": int(compiled.get_property("NUM_STREAMS")),
            "openvino_cpu_pinning": bool(compiled.get_property("ENABLE_CPU_PINNING")),
            "onnx_batch": "left open by the export, fixed by the runtime" if self._open else "fixed by the export",
            "torch_threads": self.host_threads(),
        }

    def counted(self, call: Call, inputs: Inputs) -> Dict[str, FactValue]:
        nodes = self._nodes()
        return {
            "openvino_nodes": len(nodes),
            "openvino_operators": counts_as_text(node["layerType"] for node in nodes),
            "openvino_runtime_precisions": counts_as_text(node["runtimePrecision"] for node in nodes),
        }

    def _call(self, *tensors: Any) -> Any:
        request = self._request
        for index, tensor in enumerate(tensors):
            request.set_input_tensor(index, tensor)
        request.infer(share_outputs=True)
        return request

    def _config(self) -> Dict[str, Any]:
        return {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": self.spec.threads,
            "INFERENCE_PRECISION_HINT": _PRECISION[self.spec.dtype],
        }

    def _check_taken(self) -> None:
        """Refuses a compiled graph for which the runtime lowered what it was asked for."""
        facts = self.facts()
        asked = {"openvino_precision": _PRECISION[self.spec.dtype], "openvino_threads": self.spec.threads}
        for name, value in asked.items():
            if facts[name] != value:
                raise Unsupported("OpenVINO took %s for %s, not %s" % (facts[name], name, value))

    def _nodes(self) -> List[Dict[str, str]]:
        """What the runtime says about each node that a call executes; constants and the ends of the graph left out."""
        described = [
            {name: node.get_rt_info()[name].astype(str) for name in ("layerType", "runtimePrecision")}
            for node in self._compiled.get_runtime_model().get_ops()
        ]
        return [node for node in described if node["layerType"] not in _NOT_COMPUTING]


def require_capability(capabilities: Sequence[str], dtype: str) -> None:
    """Refuses a dtype that the CPU has no instructions for: it would be computed in float32 instead.

    Raises:
        Unsupported: it has none.
    """
    if _CAPABILITY[dtype] not in capabilities:
        raise Unsupported("OpenVINO has no %s on this CPU; it has %s" % (dtype, ", ".join(sorted(capabilities))))


def reason_of(error: RuntimeError) -> str:
    """The message of an exception without the places in OpenVINO's own source, in one line."""
    lines = [line for line in str(error).splitlines() if not line.startswith(_PLACES)]
    return " ".join(" ".join(lines).split())[:_MAX_REASON] or "no message"


def _in_float32(tensors: Inputs) -> Inputs:
    return tuple(tensor.float() if tensor.is_floating_point() else tensor for tensor in tensors)


def _sizes(port: Any) -> List[Any]:
    """The sizes of a port's dimensions, None where one is open."""
    return [size.get_length() if size.is_static else None for size in port.get_partial_shape()]
