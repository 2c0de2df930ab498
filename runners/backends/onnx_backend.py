"""What the backends share that execute an ONNX graph: the artifact that holds it.

A model is exported once, with a batch dimension that is left open, and each runtime is told its batch before it
optimises the graph: to the runtime the shape is static. On BERT-base and ResNet-50 this gave the same bits and the same
latency as an export per batch, which takes 12 to 18 s and 400 MB each. Where an exporter cannot leave the batch open,
the option `batch: fixed` exports each batch by itself.

The export of float32 is made on the CPU, whatever the device of the trial: the graph is the same. Of 16 bits it is made
on the trial's device, as old versions of torch have no such kernels for the CPU.
"""

import hashlib
import json
import os
from dataclasses import replace
from typing import Any, Dict, List, Set, Tuple

from runners.backends.base import Backend
from runners.backends.onnx_export import BATCH, choose_exporter, export, require_open_batch
from runners.contract import TrialSpec, WorkloadSpec
from runners.contract.catalogue.entries import CPU
from runners.contract.record import FactValue
from runners.workloads.base import Inputs, Unsupported

OPEN = "open"

_MODEL_FILE = "model.onnx"
_NODES_FILE = "nodes.json"
# An example with 0 or 1 rows would be taken for a constant
_EXAMPLE_BATCH = 2

Node = Tuple[str, str]
"""Name and operator of a node."""


class OnnxBackend(Backend):
    """A runtime that reads the exported graph; torch only draws the inputs in the measured process."""

    has_artifact = True

    def artifact_kind(self) -> str:
        return "onnx"

    def artifact_frameworks(self) -> Tuple[str, ...]:
        return ("torch", "onnx", "onnxscript")

    def graph_dtype(self) -> str:
        """The type of the graph's numbers."""
        return self.spec.dtype

    def artifact_workload(self) -> WorkloadSpec:
        return replace(self.spec.workload, batch=_EXAMPLE_BATCH) if self._open else self.spec.workload

    def exported_spec(self) -> TrialSpec:
        """Of the model that is exported, on the device where that is done."""
        device = CPU if self.graph_dtype() == "float32" else self.spec.device
        return replace(self.spec, workload=self.artifact_workload(), device=device)

    def artifact_identity(self) -> Dict[str, Any]:
        options = {name: self.options[name] for name in ("attention", "exporter", "batch")}
        return {**options, "graph_dtype": self.graph_dtype()}

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        import onnx

        self.require()
        exporter = choose_exporter(str(self.options["exporter"]))
        example = type(self.workload)(self.exported_spec())
        model = example.build(attention=str(self.options["attention"]))
        path, model_facts = model_path(directory), example.facts(model)
        export(*self.exportable(model, example.inputs(0)), path, exporter, self._open)
        model_files = _files(directory)
        graph = onnx.load(path, load_external_data=False)
        if self._open:
            require_open_batch(graph, exporter)
        with open(os.path.join(directory, _NODES_FILE), "w") as file:
            json.dump([[node.name, node.op_type] for node in graph.graph.node], file)
        opsets = {entry.domain or "ai.onnx": entry.version for entry in graph.opset_import}
        return {
            **model_facts,
            "onnx_exporter": exporter,
            "onnx_opset": opsets["ai.onnx"],
            "onnx_nodes": len(graph.graph.node),
            "artifact_sha256": _sha256(model_files),
            "artifact_bytes": sum(os.path.getsize(path) for path in model_files),
        }

    def require(self) -> None:
        """Refuses what can be refused without the graph, before it is exported and before it is loaded.

        Raises:
            Unsupported: the runtime cannot do what is asked; the message has its reason.
        """

    def exportable(self, model: Any, inputs: Inputs) -> Tuple[Any, Inputs]:
        """The model and an example in the types that the graph is to have."""
        return model, inputs

    def host_threads(self) -> int:
        # A second pool of threads would compete with that of the runtime
        return 1

    def build(self) -> None:
        return None

    def batch_to_set(self) -> Dict[str, int]:
        """The open dimensions of the graph with their sizes in this trial."""
        return {BATCH: self.spec.workload.batch} if self._open else {}

    def check_batch(self, shapes: List[Any]) -> None:
        """Refuses a graph in which the batch has become a constant.

        Raises:
            Unsupported: an input has another batch than the trial.
        """
        batch = self.spec.workload.batch
        wrong = [shape[0] for shape in shapes if isinstance(shape[0], int) and shape[0] != batch]
        if wrong:
            raise Unsupported("the exported graph has batch %d, not %d" % (wrong[0], batch))

    @property
    def _open(self) -> bool:
        return self.options["batch"] == OPEN


def model_path(directory: str) -> str:
    """The graph within an artifact."""
    return os.path.join(directory, _MODEL_FILE)


def exported_nodes(directory: str) -> Set[Node]:
    """The nodes of the graph, as it was exported."""
    with open(os.path.join(directory, _NODES_FILE)) as file:
        return {(name, operator) for name, operator in json.load(file)}


def _files(directory: str) -> List[str]:
    return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]


def _sha256(paths: List[str]) -> str:
    total = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while True:
                block = file.read(1 << 22)
                if not block:
                    break
                total.update(block)
    return total.hexdigest()
