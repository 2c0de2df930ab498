"""Single operators and small blocks, from torch alone: inputs of normal noise, parameters from the options.

Weights have a variance of 1 / fan-in, and layers before a rectifier a bias that keeps it open: with the usual zero bias
the narrowest operators would return zeros, whatever they are given, and could not be verified.
"""

from abc import abstractmethod
from typing import Any, Dict, Optional, Tuple

from runners.contract import WorkloadSpec
from runners.contract.catalogue import WORKLOADS
from runners.contract.record import FactValue
from runners.workloads import micro_modules
from runners.workloads.base import Inputs, Unsupported
from runners.workloads.construction import missing_kernels_unsupported
from runners.workloads.tensors import PRELOAD, TensorWorkload

_SMALL = 8
_SMALL_IMAGE = 7
_OPEN_BIAS = 4.0


class MicroOp(TensorWorkload):
    """What the operators share."""

    preload = PRELOAD

    has_attention = False
    """Whether there is an attention implementation to choose."""

    gain = 1.0
    """Root mean square of weights, times the root of the fan-in."""

    @abstractmethod
    def module(self, attention: Optional[str]) -> Any:
        """The operator with unset weights."""

    @abstractmethod
    def shape(self) -> Tuple[int, ...]:
        """Of one example."""

    def bias(self) -> float:
        """What all parameters are set to that are added."""
        return 0.0

    def number(self, option: str) -> int:
        """An option that is a number."""
        return int(self.options[option])

    def construct(self, attention: Optional[str]) -> Any:
        check = WORKLOADS[self.spec.workload.name].problem
        problem = None if check is None else check(self.spec.workload)
        if problem is not None:
            raise Unsupported(problem)
        if attention not in (None, micro_modules.SDPA) and not self.has_attention:
            raise Unsupported("workload %s has no attention to choose" % self.spec.workload.name)
        return self.module(attention)

    def build(self, attention: Optional[str] = None) -> Any:
        model = super().build(attention)
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                micro_modules.scale(parameter, self.gain)
            elif "bias" in name:
                parameter.fill_(self.bias())
        return model

    def example(self, generator: Any) -> Inputs:
        import torch

        return (torch.randn(1, *self.shape(), generator=generator),)

    def reference(self, index: int, model: Any, double: bool) -> Tuple[Any, ...]:
        with missing_kernels_unsupported(self.spec.workload.name, self.spec.dtype):
            return super().reference(index, model, double)

    def twin(
        self, options: Dict[str, int], sequence_length: Optional[int] = None, image_size: Optional[int] = None
    ) -> WorkloadSpec:
        """One example of the operator with other options."""
        # All options are written out, so that operators of one structure share one twin, whatever their size
        every = {**self.options, **options}
        return WorkloadSpec(self.spec.workload.name, 1, sequence_length, image_size, every)


class _OverTokens(MicroOp):
    """Takes a sequence of vectors."""

    def tokens(self) -> int:
        """Length of the sequence."""
        length = self.spec.workload.sequence_length
        assert length is not None
        return length

    def shape(self) -> Tuple[int, ...]:
        return self.tokens(), self.number("hidden_size")

    def shrunk(self) -> WorkloadSpec:
        hidden_size = min(self.number("hidden_size"), _SMALL)
        return self.twin({"hidden_size": hidden_size}, sequence_length=min(self.tokens(), _SMALL))


class FeedForward(_OverTokens):
    """Layers are close to the identity, so that even one of width 1 passes on what it is given through many."""

    gain = 0.1

    def bias(self) -> float:
        return _OPEN_BIAS

    def module(self, attention: Optional[str]) -> Any:
        return micro_modules.feedforward(
            self.number("hidden_size"), self.number("layers"), str(self.options["activation"])
        )

    def build(self, attention: Optional[str] = None) -> Any:
        model = super().build(attention)
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.diagonal().add_(1.0)
        return model


class LayerNorm(_OverTokens):
    """Scale and shift are those of an untrained network."""

    def module(self, attention: Optional[str]) -> Any:
        return micro_modules.layer_norm(self.number("hidden_size"))


class Mha(_OverTokens):
    """Multi-head self-attention."""

    has_attention = True

    def module(self, attention: Optional[str]) -> Any:
        chosen = attention or (micro_modules.SDPA if micro_modules.has_sdpa() else micro_modules.EAGER)
        return micro_modules.self_attention(self.number("hidden_size"), self.number("heads"), chosen)

    def facts(self, model: Any) -> Dict[str, FactValue]:
        return dict(super().facts(model), attn_implementation=str(model.attention))

    def shrunk(self) -> WorkloadSpec:
        heads = self.number("heads")
        width = min(self.number("hidden_size") // heads, _SMALL)
        return self.twin({"hidden_size": heads * width}, sequence_length=min(self.tokens(), _SMALL))


class Rnn(_OverTokens):
    """An Elman network; it does not diverge, whatever its width and the length of its input."""

    gain = 0.5
    kind = "RNN"
    gates = 1

    def bias(self) -> float:
        return _OPEN_BIAS / 2 if self.options["nonlinearity"] == "relu" else 0.0

    def module(self, attention: Optional[str]) -> Any:
        nonlinearity = str(self.options["nonlinearity"])
        return micro_modules.recurrent(self.kind, self.number("hidden_size"), self.number("layers"), nonlinearity)

    def shrunk(self) -> WorkloadSpec:
        # Every step is a round of the framework: the twin makes as many
        return self.twin({"hidden_size": min(self.number("hidden_size"), _SMALL)}, sequence_length=self.tokens())

    def cost(self, model: Any) -> Dict[str, FactValue]:
        # Counted by hand, because torch runs the network as one operator of which its counter knows nothing:
        # each gate of each layer multiplies the input and the state of each step by a square matrix
        macs = self.tokens() * self.number("layers") * self.gates * 2 * self.number("hidden_size") ** 2
        return {"flops_per_example": 2 * macs, "macs_per_example": macs, "flops_problem": None}


class Lstm(Rnn):
    """A network with long short-term memory."""

    kind = "LSTM"
    gates = 4

    def bias(self) -> float:
        return 0.0

    def module(self, attention: Optional[str]) -> Any:
        return micro_modules.recurrent(self.kind, self.number("hidden_size"), self.number("layers"))


class _Convolution(MicroOp):
    dimensions: int

    def bias(self) -> float:
        return _OPEN_BIAS

    def filter(self) -> micro_modules.Filter:
        """Channels, kernel and its way over the input."""
        kernel_size = self.number("kernel_size")
        padding = kernel_size // 2 if self.options["padding"] == "half" else 0
        channels = self.number("in_channels"), self.number("out_channels")
        return micro_modules.Filter(*channels, kernel_size, self.number("stride"), padding)

    def module(self, attention: Optional[str]) -> Any:
        return micro_modules.convolution(self.dimensions, self.filter(), str(self.options["activation"]))

    def small_channels(self) -> Dict[str, int]:
        """Few channels, as many on either side only if the operator has as many: a block then adds its input."""
        before, after = self.number("in_channels"), self.number("out_channels")
        few = min(before, after, _SMALL)
        return {"in_channels": few, "out_channels": few if before == after else 2 * few}

    def image_size(self) -> int:
        """Height and width of the input."""
        size = self.spec.workload.image_size
        assert size is not None
        return size


class Conv1d(_Convolution):
    """A filter over a signal."""

    dimensions = 1

    def shape(self) -> Tuple[int, ...]:
        return self.number("in_channels"), self.number("input_length")

    def shrunk(self) -> WorkloadSpec:
        length = min(self.number("input_length"), max(_SMALL, self.number("kernel_size")))
        return self.twin({**self.small_channels(), "input_length": length})


class Conv2d(_Convolution):
    """A filter over an image."""

    dimensions = 2

    def shape(self) -> Tuple[int, ...]:
        return self.number("in_channels"), self.image_size(), self.image_size()

    def shrunk(self) -> WorkloadSpec:
        size = min(self.image_size(), max(_SMALL_IMAGE, self.number("kernel_size")))
        return self.twin(self.small_channels(), image_size=size)


class MbConv2d(Conv2d):
    """The inverted residual block of MobileNetV2."""

    def bias(self) -> float:
        # The middle of the open range of its rectifier, which ends at 6
        return 3.0

    def module(self, attention: Optional[str]) -> Any:
        return micro_modules.inverted_residual(self.filter(), self.number("expand_ratio"))
