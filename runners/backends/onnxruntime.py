"""ONNX Runtime on an exported graph, on the CPU or on a GPU."""

from collections import Counter
from typing import Any, ContextManager, Dict, Optional, Tuple, Union

from runners.backends.onnx_backend import OnnxBackend, exported_nodes, model_path
from runners.backends.onnx_export import input_names
from runners.backends.onnxruntime_libraries import library_knows
from runners.backends.onnxruntime_nodes import Executed, executed_nodes, node_facts
from runners.backends.onnxruntime_runs import WITHOUT_WAITING, BoundRuns, GraphRuns, PlainRuns, allocate_outputs
from runners.backends.onnxruntime_session import (
    USER_STREAM,
    SessionSettings,
    check_providers,
    open_session,
    provider_options,
    require_known,
    require_provider,
    require_spinning_switch,
)
from runners.contract.catalogue.entries import CUDA
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported

_CUDA_OPTIONS = ("use_tf32", "cudnn_conv_algo_search", "do_copy_in_default_stream", "arena_extend_strategy")

Runs = Union[PlainRuns, BoundRuns]


class OnnxRuntime(OnnxBackend):
    """One session with as many intra-operator threads as the trial asks for."""

    preload = ("runners.backends.onnxruntime_import",)
    allocates_by_torch = False

    _executed: Optional[Tuple[Executed, ...]] = None

    def require(self) -> None:
        graph, binding = self.options["cuda_graph"], self.options["io_binding"]
        if self.spec.device == CUDA:
            if graph and binding is False:
                raise Unsupported("cuda_graph: true needs fixed addresses, and io_binding: false has none")
        elif graph:
            raise Unsupported("cuda_graph: true needs device cuda")
        elif not self.options["synchronous"]:
            raise Unsupported("synchronous: false needs device cuda: a CPU has no queue")
        require_provider(self.spec.device)
        if graph:
            # Else the copies of its inputs and the replay would be on streams that do not wait for each other
            require_known((USER_STREAM,))
        if not self.options["synchronous"]:
            require_known((WITHOUT_WAITING,))
        if not self.options["spinning"]:
            require_spinning_switch()

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        assert artifact is not None
        self.require()
        self._artifact = artifact
        self._stream = self._make_stream()
        self._settings = SessionSettings(
            path=model_path(artifact),
            device=self.spec.device,
            threads=self.spec.threads,
            level=int(self.options["optimization"]),
            spinning=bool(self.options["spinning"]),
            dimensions=self.batch_to_set(),
            cuda_graph=bool(self.options["cuda_graph"]),
            stream=None if self._stream is None else self._stream.cuda_stream,
        )
        self._session = open_session(self._settings)
        self.check_batch([given.shape for given in self._session.get_inputs()])
        self._runs = self._make_runs()
        return self._runs

    def dispatched(self, call: Call) -> Optional[Call]:
        if not library_knows(WITHOUT_WAITING):
            return None
        return self._runs.without_waiting()

    def execution(self) -> ContextManager[Any]:
        if self._stream is None:
            return super().execution()
        import torch

        context: ContextManager[Any] = torch.cuda.stream(self._stream)
        return context

    def native(self, inputs: Inputs) -> Inputs:
        return self._runs.native(inputs)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        return self._runs.outputs(result)

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        return Counter(node.operator for node in self._executed_nodes())

    def examined(self) -> Dict[str, FactValue]:
        check_providers(self._session, self._settings.provider)
        return {}

    def counted(self, call: Call, inputs: Inputs) -> Dict[str, FactValue]:
        return node_facts(self._executed_nodes(), exported_nodes(self._artifact), self._settings.provider)

    def facts(self) -> Dict[str, FactValue]:
        facts: Dict[str, FactValue] = {
            "onnx_provider": self._settings.provider,
            "onnx_batch": self._batch(),
            "onnx_optimization": self._settings.level,
            "ort_intra_op_threads": self._settings.threads,
            "ort_inter_op_threads": 1,
            "ort_spinning": self._settings.spinning,
            "ort_io_binding": not isinstance(self._runs, PlainRuns),
            "torch_threads": self.host_threads(),
        }
        if self.spec.device == CUDA:
            taken = provider_options(self._session, self._settings.provider)
            facts.update(("ort_cuda_" + name, taken.get(name)) for name in _CUDA_OPTIONS)
            facts["ort_cuda_graph"] = self._settings.cuda_graph
            facts["ort_synchronous"] = self.options["synchronous"]
        return facts

    def _make_stream(self) -> Any:
        """On a GPU a stream that torch and the session share, so that copies and runs are done in their order.

        A version that takes none of ours has one of its own: its runs then have to be waited for.
        """
        if self.spec.device != CUDA or not library_knows(USER_STREAM):
            return None
        import torch

        return torch.cuda.Stream()

    def _make_runs(self) -> Runs:
        example, device = self.workload.inputs(0), self.spec.device
        plain = PlainRuns(self._session, input_names(len(example)))
        wanted, graph = self.options["io_binding"], self._settings.cuda_graph
        if wanted is False or (wanted == "auto" and device != CUDA):
            return plain
        [feeds] = plain.native(example)
        outputs = allocate_outputs(self._session, feeds, device, may_run=not graph)
        synchronous = bool(self.options["synchronous"])
        if not graph:
            return BoundRuns(self._session, plain.names, outputs, synchronous)
        with self.execution():
            return GraphRuns(self._session, plain.names, outputs, synchronous, example)

    def _executed_nodes(self) -> Tuple[Executed, ...]:
        if self._executed is None:
            self._executed = executed_nodes(self._settings, self.workload.inputs(0))
        return self._executed

    def _batch(self) -> str:
        if not self._open:
            return "fixed by the export"
        if all(isinstance(given.shape[0], int) for given in self._session.get_inputs()):
            return "left open by the export, fixed by the session"
        return "left open by the export and by the session"
