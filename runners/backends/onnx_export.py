"""What the backends share that execute an ONNX graph: the export of the model.

A model is exported once, with a batch dimension that is left open, and each runtime is told its batch before it
optimises the graph: to the runtime the shape is static. On BERT-base and ResNet-50 this gave the same bits and the same
latency as an export per batch, which takes 12 to 18 s and 400 MB each. Where an exporter cannot leave the batch open,
the option `batch: fixed` exports each batch by itself.

The export is made on the CPU, whatever the device of the trial: the graph is the same.
"""

import hashlib
import importlib.util
import inspect
import json
import os
import traceback
from collections import Counter
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Set, Tuple

from runners.backends.base import Backend
from runners.contract import WorkloadSpec
from runners.contract.catalogue.entries import CPU
from runners.contract.record import FactValue
from runners.workloads.base import Inputs, Unsupported

BATCH = "batch"
"""The name of the open dimension."""
OPEN = "open"
DYNAMO = "dynamo"
LEGACY = "legacy"
AUTO = "auto"

_MODEL_FILE = "model.onnx"
_NODES_FILE = "nodes.json"
# An example with 0 or 1 rows would be taken for a constant
_EXAMPLE_BATCH = 2
_DYNAMO_PARAMETERS = {"dynamo", "dynamic_shapes"}
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "Failed to allocate memory", "bad_alloc")
_MAX_REASON = 300

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

    def artifact_identity(self) -> Dict[str, Any]:
        options = {name: self.options[name] for name in ("attention", "exporter", "batch")}
        return {**options, "graph_dtype": self.graph_dtype()}

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        import onnx

        self.require()
        exporter = choose_exporter(str(self.options["exporter"]))
        example = type(self.workload)(replace(self.spec, workload=self.artifact_workload(), device=CPU))
        model = example.build(attention=str(self.options["attention"]))
        path, model_facts = model_path(directory), example.facts(model)
        export(*self.exportable(model, example.inputs(0)), path, exporter, self._open)
        model_files = _files(directory)
        graph = onnx.load(path, load_external_data=False)
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
            hint = "; take the option batch: fixed" if self._open else ""
            raise Unsupported("the exported graph has batch %d, not %d%s" % (wrong[0], batch, hint))

    @property
    def _open(self) -> bool:
        return self.options["batch"] == OPEN


def input_names(count: int) -> List[str]:
    """The names of the graph's inputs, by position."""
    return ["input_%d" % index for index in range(count)]


def model_path(directory: str) -> str:
    """The graph within an artifact."""
    return os.path.join(directory, _MODEL_FILE)


def exported_nodes(directory: str) -> Set[Node]:
    """The nodes of the graph, as it was exported."""
    with open(os.path.join(directory, _NODES_FILE)) as file:
        return {(name, operator) for name, operator in json.load(file)}


def choose_exporter(asked: str) -> str:
    """The exporter to take; `auto` takes `dynamo` where there is one.

    Raises:
        Unsupported: this torch has no `dynamo` exporter, or not all that it needs.
    """
    import torch

    problem = None
    if not _DYNAMO_PARAMETERS.issubset(inspect.signature(torch.onnx.export).parameters):
        problem = "torch %s has no dynamo exporter" % torch.__version__
    elif importlib.util.find_spec("onnxscript") is None:
        problem = "the dynamo exporter needs onnxscript, which the environment lacks"
    if asked == AUTO:
        return LEGACY if problem else DYNAMO
    if asked == DYNAMO and problem:
        raise Unsupported(problem + "; take exporter: legacy")
    return asked


def export(model: Any, inputs: Inputs, path: str, exporter: str, open_batch: bool) -> None:
    """Writes a module as an ONNX graph, in the exporter's own default opset.

    Args:
        model: takes tensors by position and returns a tuple of tensors.
        inputs: an example; with an open batch its first axes are what is left open.
        path: of the graph; the weights may go into a file beside it.
        exporter: `dynamo` or `legacy`.
        open_batch: whether the first axis of each input is a dimension named `batch`.

    Raises:
        Unsupported: the exporter cannot do it; the message has its reason.
    """
    import torch

    try:
        with torch.no_grad():
            torch.onnx.export(_by_position(model), inputs, path, **_settings(len(inputs), exporter, open_batch))
    except Exception as error:
        if memory_ran_out(error):
            raise
        traceback.print_exc()
        raise Unsupported("torch.onnx export (%s) failed: %s" % (exporter, reason_of(error))) from None


def reason_of(error: BaseException) -> str:
    """What went wrong first, in one line: exporters wrap it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    return ("%s: %s" % (type(error).__name__, next(filter(None, lines), "no message")))[:_MAX_REASON]


def counts_as_text(names: Iterable[str]) -> str:
    """`MatMul 72, Add 14`: the most frequent first."""
    ordered: List[Tuple[str, int]] = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join("%s %d" % item for item in ordered) or "none"


def memory_ran_out(error: BaseException) -> bool:
    """Whether an exception says so: that is no refusal. Neither torch nor ONNX Runtime raises MemoryError."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in _OUT_OF_MEMORY)


def _by_position(model: Any) -> Any:
    # The tracing exporter passes every optional argument of a `forward` by position, which current models refuse
    import torch

    class ByPosition(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return self.model(*inputs)

    return ByPosition().eval()


def _settings(inputs: int, exporter: str, open_batch: bool) -> Dict[str, Any]:
    import torch

    names = input_names(inputs)
    settings: Dict[str, Any] = {"input_names": names}
    if exporter == DYNAMO:
        settings.update(dynamo=True, verbose=False)
        if open_batch:
            axis = {0: torch.export.Dim(BATCH)}
            settings["dynamic_shapes"] = (tuple(axis for _ in names),)
        return settings
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        settings["dynamo"] = False
    if open_batch:
        settings["dynamic_axes"] = {name: {0: BATCH} for name in names}
    return settings


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
