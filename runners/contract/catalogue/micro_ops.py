"""Single operators and small blocks, from torch alone: the micro-operators of the paper's code."""

from typing import Dict, Mapping, Optional

from runners.contract.catalogue.entries import MICRO_OPS, Choice, IntegerRange, OptionInfo, WorkloadInfo
from runners.contract.spec import OptionValue, WorkloadSpec

PADDING: OptionInfo = Choice(allowed=("half", "none"), default="half")
"""`half`: half the kernel, rounded down, of zeros on each side, so that stride 1 keeps the size; `none`: no zeros."""


def _hidden(default: int) -> OptionInfo:
    return IntegerRange(1, 16_384, default)


def _layers() -> OptionInfo:
    return IntegerRange(1, 128, 1)


def _convolution(channels: int) -> Dict[str, OptionInfo]:
    return {
        "in_channels": IntegerRange(1, 8_192, channels),
        "out_channels": IntegerRange(1, 8_192, channels),
        "kernel_size": IntegerRange(1, 31, 3),
        "stride": IntegerRange(1, 16, 1),
        "padding": PADDING,
    }


_ACTIVATION: OptionInfo = Choice(allowed=("relu", "gelu", "none"), default="relu")
_NONLINEARITY: OptionInfo = Choice(allowed=("relu", "tanh"), default="relu")


def problem(spec: WorkloadSpec) -> Optional[str]:
    """Why a combination of allowed values makes no operator, in one line; None if it makes one."""
    options = {name: spec.options.get(name, info.default) for name, info in WORKLOADS[spec.name].options.items()}
    if "kernel_size" in options:
        return _kernel_problem(spec, options)
    if spec.name == "op-mha" and int(options["hidden_size"]) % int(options["heads"]):
        return "%s heads do not divide hidden_size %s" % (options["heads"], options["hidden_size"])
    if spec.name == "op-layernorm" and options["hidden_size"] == 1:
        return "a layer norm of one value is its bias whatever the input; hidden_size starts at 2"
    return None


def _kernel_problem(spec: WorkloadSpec, options: Mapping[str, OptionValue]) -> Optional[str]:
    size, kernel = options.get("input_length", spec.image_size), options["kernel_size"]
    assert isinstance(size, int)
    assert isinstance(kernel, int)
    if options["padding"] == "none" and kernel > size:
        return "kernel_size %d is larger than the input of %d, and padding is none" % (kernel, size)
    return None


def _operator(
    about: str,
    options: Dict[str, OptionInfo],
    sequence_length: Optional[int] = None,
    image_size: Optional[int] = None,
) -> WorkloadInfo:
    return WorkloadInfo(
        MICRO_OPS, ("torch",), sequence_length, image_size, options=options, problem=problem, about=about
    )


# By default, parts that networks have: a hidden layer, the norm and the attention of BERT-base, a convolution of
# ResNet-50 and a block like MobileNetV2's at 56 pixels, a small filter over 1024 values
WORKLOADS: Dict[str, WorkloadInfo] = {
    "op-feedforward": _operator(
        "linear layers of one width",
        {"layers": _layers(), "hidden_size": _hidden(768), "activation": _ACTIVATION},
        128,
    ),
    "op-conv2d": _operator("a filter over an image", {**_convolution(64), "activation": _ACTIVATION}, image_size=56),
    "op-mbconv2d": _operator(
        "the inverted residual block of MobileNetV2",
        {**_convolution(32), "expand_ratio": IntegerRange(1, 16, 6)},
        image_size=56,
    ),
    "op-conv1d": _operator(
        "a filter over a signal",
        {"input_length": IntegerRange(1, 1 << 20, 1_024), **_convolution(3), "activation": _ACTIVATION},
    ),
    "op-rnn": _operator(
        "an Elman network", {"layers": _layers(), "hidden_size": _hidden(512), "nonlinearity": _NONLINEARITY}, 32
    ),
    "op-lstm": _operator(
        "a network with long short-term memory", {"layers": _layers(), "hidden_size": _hidden(512)}, 32
    ),
    "op-layernorm": _operator("a layer norm", {"hidden_size": _hidden(768)}, 128),
    "op-mha": _operator(
        "multi-head self-attention", {"hidden_size": _hidden(768), "heads": IntegerRange(1, 256, 12)}, 128
    ),
}
