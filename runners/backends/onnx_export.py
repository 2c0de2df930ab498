"""The export of a model as an ONNX graph, in one of PyTorch's two ways."""

import importlib.util
import inspect
import traceback
from typing import Any, Dict, List

from runners.backends.preparation import OUT_OF_MEMORY
from runners.workloads.base import Inputs, Unsupported

BATCH = "batch"
"""The name of the open dimension."""
DYNAMO = "dynamo"
LEGACY = "legacy"
AUTO = "auto"

_DYNAMO_PARAMETERS = {"dynamo", "dynamic_shapes"}
_MAX_REASON = 300


def input_names(count: int) -> List[str]:
    """The names of the graph's inputs, by position."""
    return ["input_%d" % index for index in range(count)]


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


def require_open_batch(graph: Any, exporter: str) -> None:
    """Refuses a graph in which the exporter has made the batch of the example a constant, silently.

    Raises:
        Unsupported: it has.
    """
    first = [given.type.tensor_type.shape.dim[0] for given in graph.graph.input]
    fixed = [axis.dim_value for axis in first if axis.dim_param != BATCH]
    if fixed:
        raise Unsupported(
            "torch.onnx export (%s) fixed the batch of the example, %d; take the option batch: fixed"
            % (exporter, fixed[0])
        )


def reason_of(error: BaseException) -> str:
    """What went wrong first, in one line: exporters wrap it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    return ("%s: %s" % (type(error).__name__, next(filter(None, lines), "no message")))[:_MAX_REASON]


def memory_ran_out(error: BaseException) -> bool:
    """Whether an exception says so: that is no refusal."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in (*OUT_OF_MEMORY, "bad_alloc"))


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
