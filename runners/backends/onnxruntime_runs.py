"""Three ways to run a session of ONNX Runtime, each with its own form of inputs and outputs."""

import copy
from typing import Any, Dict, List, Optional, Sequence, Tuple

from runners.backends.onnxruntime_session import refusal
from runners.workloads.base import Call, Inputs, Unsupported

_TORCH_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
}
# The exporter made a graph that fits the example only, such as one with a constant batch inside
_VERB = "cannot run"
WITHOUT_WAITING = "disable_synchronize_execution_providers"
"""The entry of a run that returns when its work is queued on the device."""


class PlainRuns:
    """A call takes arrays by name and returns arrays; the runtime allocates what it returns."""

    def __init__(self, session: Any, names: Sequence[str]) -> None:
        self.names = names
        self._run = session.run
        self._read = [given.name for given in session.get_inputs()]
        self._written = [output.name for output in session.get_outputs()]

    def native(self, tensors: Inputs) -> Inputs:
        """The arrays of a set of inputs."""
        by_name = dict(zip(self.names, tensors))
        return ({name: by_name[name].cpu().numpy() for name in self._read},)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        """Tensors that nothing writes into any more."""
        import torch

        return tuple(torch.from_numpy(array) for array in result)

    def without_waiting(self) -> Optional[Call]:
        """None: what it returns lies on the host."""
        return None

    def __call__(self, feeds: Dict[str, Any]) -> Any:
        try:
            return self._run(self._written, feeds)
        except Exception as error:
            raise refusal(error, _VERB) from error


class BoundRuns:
    """A call takes a binding, made beforehand for each set of inputs, and returns the outputs that all calls share.

    Inputs are read where they lie and outputs are written in place: nothing is allocated or copied.
    """

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Tuple[Any, ...], synchronous: bool) -> None:
        self._session = session
        self._inputs = inputs
        self._outputs = outputs
        self._options = run_options(synchronous)
        # A binding holds addresses only
        self._kept: List[Inputs] = []

    def native(self, tensors: Inputs) -> Inputs:
        """The binding of a set of inputs."""
        return (self._bind(tensors),)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        """Copies on the host."""
        return tuple(tensor.to("cpu", copy=True) for tensor in result)

    def without_waiting(self) -> Optional[Call]:
        """The same call, which returns when its work is queued; None if that cannot be."""
        twin = copy.copy(self)
        twin._options = run_options(synchronous=False)
        return twin

    def __call__(self, binding: Any) -> Tuple[Any, ...]:
        try:
            self._session.run_with_iobinding(binding, self._options)
        except Exception as error:
            raise refusal(error, _VERB) from error
        return self._outputs

    def _bind(self, tensors: Inputs) -> Any:
        self._kept.append(tuple(tensor.contiguous() for tensor in tensors))
        binding = self._session.io_binding()
        by_name = dict(zip(self._inputs, self._kept[-1]))
        for read in self._session.get_inputs():
            binding.bind_input(read.name, *_place(by_name[read.name]))
        for written, tensor in zip(self._session.get_outputs(), self._outputs):
            binding.bind_output(written.name, *_place(tensor))
        return binding


class GraphRuns(BoundRuns):
    """A call copies its inputs to where the CUDA graph reads them and replays it."""

    def __init__(
        self, session: Any, inputs: Sequence[str], outputs: Tuple[Any, ...], synchronous: bool, example: Inputs
    ) -> None:
        super().__init__(session, inputs, outputs, synchronous)
        self._static = tuple(tensor.clone().contiguous() for tensor in example)
        self._binding = self._bind(self._static)
        # The first run is an ordinary one, and the graph is recorded in it
        super().__call__(self._binding)

    def native(self, tensors: Inputs) -> Inputs:
        return tensors

    def without_waiting(self) -> Optional[Call]:
        # A replay waits whatever is asked (onnxruntime#28686)
        return None

    def __call__(self, *tensors: Any) -> Tuple[Any, ...]:
        for static, given in zip(self._static, tensors):
            static.copy_(given)
        return super().__call__(self._binding)


def run_options(synchronous: bool) -> Any:
    """Options of a run; one that is not synchronous returns when its work is queued on the device."""
    if synchronous:
        return None
    import onnxruntime as ort

    options = ort.RunOptions()
    options.add_run_config_entry(WITHOUT_WAITING, "1")
    return options


def allocate_outputs(session: Any, feeds: Dict[str, Any], device: str, may_run: bool) -> Tuple[Any, ...]:
    """Tensors for the outputs of a session.

    Args:
        session: of a graph with static shapes.
        feeds: inputs by name, on the host.
        device: where the tensors go.
        may_run: whether a run may tell the shapes, where the session itself does not know them.

    Raises:
        Unsupported: the shapes or types are not known.
    """
    import torch

    outputs = session.get_outputs()
    shapes = [output.shape for output in outputs]
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        if not may_run:
            raise Unsupported("ONNX Runtime does not know the shapes of the outputs beforehand: %s" % shapes)
        shapes = [list(array.shape) for array in PlainRuns(session, ())(feeds)]
    unknown = [output.type for output in outputs if output.type not in _TORCH_TYPES]
    if unknown:
        raise Unsupported("an output of type %s cannot be bound" % unknown[0])
    types = [getattr(torch, _TORCH_TYPES[output.type]) for output in outputs]
    return tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in zip(shapes, types))


def _place(tensor: Any) -> Tuple[str, int, Any, List[int], int]:
    return tensor.device.type, tensor.device.index or 0, _numpy_type(tensor), list(tensor.shape), tensor.data_ptr()


def _numpy_type(tensor: Any) -> Any:
    import numpy as np

    name = str(tensor.dtype).replace("torch.", "")
    # The first versions know 64-bit integers by this name of C only
    return np.longlong if name == "int64" else np.dtype(name).type
