"""The torch modules of the operators. Each takes tensors, all but the triad a single one, and returns a tuple."""

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

from runners.workloads.base import Unsupported

SDPA = "sdpa"
EAGER = "eager"

_MOST_FOR_SCALE = 4096
_TRIAD_FACTOR = 3.0


@dataclass(frozen=True)
class Filter:
    """A convolution's channels, its kernel and the way it takes over the input; the same in each dimension."""

    in_channels: int
    out_channels: int
    kernel_size: int = 1
    stride: int = 1
    padding: int = 0
    """Zeros on each side."""


def feedforward(hidden_size: int, layers: int, activation: str) -> Any:
    """Linear layers of one width, each followed by its activation."""
    import torch

    parts: List[Any] = []
    for _ in range(layers):
        parts.append(torch.nn.Linear(hidden_size, hidden_size))
        parts += _activation(activation)
    return with_one_output(torch.nn.Sequential(*parts))


def convolution(dimensions: int, shape: Filter, activation: str) -> Any:
    """One convolution over one or two dimensions with its bias and activation."""
    import torch

    kind = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d}[dimensions]
    layer = kind(shape.in_channels, shape.out_channels, shape.kernel_size, stride=shape.stride, padding=shape.padding)
    return with_one_output(torch.nn.Sequential(layer, *_activation(activation)))


def inverted_residual(shape: Filter, expand_ratio: int) -> Any:
    """The block of MobileNetV2 (Sandler et al., 2018, section 3.4): expand, filter each channel, project.

    Each convolution has a batch norm in place of a bias. With an expand ratio of 1 there is nothing to expand; the
    input is added where its shape is that of the output.
    """
    import torch

    inner = shape.in_channels * expand_ratio
    expand, project = Filter(shape.in_channels, inner), Filter(inner, shape.out_channels)
    depthwise = Filter(inner, inner, shape.kernel_size, shape.stride, shape.padding)
    parts: List[Any] = []
    if expand_ratio > 1:
        parts += [*_normalised(expand), torch.nn.ReLU6()]
    parts += [*_normalised(depthwise, groups=inner), torch.nn.ReLU6(), *_normalised(project)]
    body = torch.nn.Sequential(*parts)
    keeps_size = shape.stride == 1 and 2 * shape.padding == shape.kernel_size - 1
    return _residual(body) if keeps_size and shape.in_channels == shape.out_channels else with_one_output(body)


def recurrent(kind: str, hidden_size: int, layers: int, nonlinearity: Optional[str] = None) -> Any:
    """An RNN or LSTM in one direction, without dropout.

    Outputs are the last layer at every step, then the final states of all layers with the example on the first axis.
    """
    import torch

    more = {} if nonlinearity is None else {"nonlinearity": nonlinearity}
    network = getattr(torch.nn, kind)(hidden_size, hidden_size, num_layers=layers, batch_first=True, **more)

    class Recurrent(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, inputs: Any) -> Tuple[Any, ...]:
            sequence, states = self.network(inputs)
            if not isinstance(states, tuple):
                states = (states,)
            return (sequence, *(state.transpose(0, 1) for state in states))

    return Recurrent()


def layer_norm(hidden_size: int) -> Any:
    """Layer norm over the last axis, with its scale and shift."""
    import torch

    return with_one_output(torch.nn.LayerNorm(hidden_size))


def product(width: int) -> Any:
    """A square matrix that inputs are multiplied by, without bias."""
    import torch

    return with_one_output(torch.nn.Linear(width, width, bias=False))


def triad(batch: int, elements: int) -> Any:
    """a = b + 3c into an array of its own, as STREAM has it.

    An array that is allocated for each call costs a processor more than the triad: the kernel maps its pages one by
    one. Exported to ONNX it is the sum alone, as a graph has no say in where its runtime puts an output.
    """
    import torch

    is_exporting = getattr(getattr(torch, "compiler", None), "is_exporting", lambda: False)

    class Triad(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sum", torch.zeros(batch, elements))

        def forward(self, left: Any, right: Any) -> Tuple[Any, ...]:
            if is_exporting() or (torch.jit.is_tracing() and torch.onnx.is_in_onnx_export()):
                return (torch.add(left, right, alpha=_TRIAD_FACTOR),)
            return (torch.add(left, right, alpha=_TRIAD_FACTOR, out=self.sum),)

    return Triad()


def self_attention(hidden_size: int, heads: int, attention: str) -> Any:
    """Multi-head self-attention without mask or dropout: query, key, value, attention, output.

    Raises:
        Unsupported: this torch has no such attention.
    """
    import torch

    functional = torch.nn.functional
    if attention == SDPA and not has_sdpa():
        raise Unsupported("torch %s has no scaled_dot_product_attention; its attention is `eager`" % torch.__version__)
    width = hidden_size // heads

    class SelfAttention(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention
            self.query = torch.nn.Linear(hidden_size, hidden_size)
            self.key = torch.nn.Linear(hidden_size, hidden_size)
            self.value = torch.nn.Linear(hidden_size, hidden_size)
            self.output = torch.nn.Linear(hidden_size, hidden_size)

        def forward(self, inputs: Any) -> Tuple[Any, ...]:
            query, key, value = (self.split(layer(inputs)) for layer in (self.query, self.key, self.value))
            if attention == SDPA:
                mixed = functional.scaled_dot_product_attention(query, key, value)
            else:
                scores = torch.matmul(query, key.transpose(-1, -2)) / width**0.5
                mixed = torch.matmul(functional.softmax(scores, dim=-1), value)
            return (self.output(mixed.transpose(1, 2).flatten(2)),)

        def split(self, tensor: Any) -> Any:
            return tensor.view(*tensor.shape[:-1], heads, width).transpose(1, 2)

    return SelfAttention()


def has_sdpa() -> bool:
    """Whether this torch has the fused attention function (it came with 2.0)."""
    import torch

    return hasattr(torch.nn.functional, "scaled_dot_product_attention")


def with_one_output(body: Any) -> Any:
    """A module that returns what `body` does, as a tuple of one."""
    import torch

    class OneOutput(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, inputs: Any) -> Tuple[Any, ...]:
            return (self.body(inputs),)

    return OneOutput()


def scale(weight: Any, gain: float) -> None:
    """Makes the root mean square of a weight `gain` over the root of its fan-in, judged by its first values."""
    sample = weight.flatten()[:_MOST_FOR_SCALE].double()
    root_mean_square = float(sample.square().mean().sqrt())
    weight.mul_(gain / weight[0].numel() ** 0.5 / root_mean_square)


def _residual(body: Any) -> Any:
    import torch

    class Residual(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, inputs: Any) -> Tuple[Any, ...]:
            return (inputs + self.body(inputs),)

    return Residual()


def _normalised(shape: Filter, groups: int = 1) -> List[Any]:
    import torch

    layer = torch.nn.Conv2d(
        shape.in_channels,
        shape.out_channels,
        shape.kernel_size,
        stride=shape.stride,
        padding=shape.padding,
        groups=groups,
        bias=False,
    )
    return [layer, torch.nn.BatchNorm2d(shape.out_channels)]


def _activation(name: str) -> List[Any]:
    import torch

    return {"relu": [torch.nn.ReLU()], "gelu": [torch.nn.GELU()], "none": []}[name]
