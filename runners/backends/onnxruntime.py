"""ONNX Runtime on an exported graph.

A model is exported once, with a batch dimension that is left open, and each session is told its batch before it
optimises the graph: to the session the shape is static. On BERT-base and ResNet-50 this gave the same bits and the same
latency as an export per batch, which takes 12 to 18 s and 400 MB each.
"""

import functools
import hashlib
import os
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

from runners.backends.base import Backend
from runners.contract import WorkloadSpec
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported

_MODEL_FILE = "model.onnx"
_BATCH = "batch"
# An example with 0 or 1 rows would be taken for a constant
_EXAMPLE_BATCH = 2
_PROVIDER = "CPUExecutionProvider"
_LEVELS = {0: "ORT_DISABLE_ALL", 1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED", 3: "ORT_ENABLE_ALL"}


class OnnxRuntime(Backend):
    """One session on the CPU provider, with as many intra-operator threads as the trial asks for."""

    preload = ("onnxruntime",)
    has_artifact = True

    def artifact_workload(self) -> WorkloadSpec:
        return replace(self.spec.workload, batch=_EXAMPLE_BATCH)

    def artifact_identity(self) -> Dict[str, Any]:
        return {"exporter": self.options["exporter"]}

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        import onnx
        import torch

        path = os.path.join(directory, _MODEL_FILE)
        dynamo = self.options["exporter"] == "dynamo"
        example = type(self.workload)(replace(self.spec, workload=self.artifact_workload()))
        with torch.no_grad():
            model = _with_one_input(example.build())
            torch.onnx.export(model, example.inputs(0), path, dynamo=dynamo, **_open_batch(dynamo))
        graph = onnx.load(path, load_external_data=False)
        opsets = {entry.domain or "ai.onnx": entry.version for entry in graph.opset_import}
        return {
            "onnx_exporter": "dynamo" if dynamo else "legacy",
            "onnx_opset": opsets["ai.onnx"],
            "onnx_nodes": len(graph.graph.node),
            "artifact_sha256": _sha256_of_files(directory),
            "artifact_bytes": sum(os.path.getsize(path) for path in _files(directory)),
        }

    def host_threads(self) -> int:
        # Torch only draws the inputs here; a second pool of threads would compete with the session's
        return 1

    def build(self) -> None:
        return None

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        import onnxruntime as ort

        assert artifact is not None
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.spec.threads
        options.inter_op_num_threads = 1
        options.add_free_dimension_override_by_name(_BATCH, self.spec.workload.batch)
        level = _LEVELS[int(self.options["optimization"])]
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        session = ort.InferenceSession(os.path.join(artifact, _MODEL_FILE), options, providers=[_PROVIDER])
        if session.get_providers() != [_PROVIDER]:
            raise Unsupported("ONNX Runtime took the providers %s, not %s" % (session.get_providers(), _PROVIDER))
        [first, *_] = session.get_inputs()
        if first.shape[0] != self.spec.workload.batch:
            raise Unsupported("the exported graph has batch %s, not %d" % (first.shape[0], self.spec.workload.batch))
        self._input = first.name
        return functools.partial(session.run, [output.name for output in session.get_outputs()])

    def native(self, inputs: Inputs) -> Inputs:
        [tensor] = inputs
        return ({self._input: tensor.numpy()},)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        import torch

        return tuple(torch.from_numpy(array) for array in result)

    def facts(self) -> Dict[str, FactValue]:
        return {
            "onnx_provider": _PROVIDER,
            "onnx_batch": "left open by the export, fixed by the session",
            "onnx_optimization": int(self.options["optimization"]),
            "ort_intra_op_threads": self.spec.threads,
            "ort_inter_op_threads": 1,
            "torch_threads": self.host_threads(),
        }


def _with_one_input(model: Any) -> Any:
    # The tracing exporter passes every optional argument of a `forward` by position, which current models refuse
    import torch

    class OneInput(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, inputs: Any) -> Any:
            return self.model(inputs)

    return OneInput().eval()


def _open_batch(dynamo: bool) -> Dict[str, Any]:
    import torch

    if dynamo:
        return {"dynamic_shapes": ({0: torch.export.Dim(_BATCH)},)}
    return {"input_names": ["inputs"], "dynamic_axes": {"inputs": {0: _BATCH}}}


def _files(directory: str) -> List[str]:
    return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]


def _sha256_of_files(directory: str) -> str:
    total = hashlib.sha256()
    for path in _files(directory):
        with open(path, "rb") as file:
            while True:
                block = file.read(1 << 22)
                if not block:
                    break
                total.update(block)
    return total.hexdigest()
