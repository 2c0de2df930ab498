"""The shrunk twin of a convolutional network: every layer and operator stays, with a fraction of the channels."""

from typing import Any

_COLOURS = 3
_FEWEST_GROUPS = 2


def fewer(channels: int, divisor: int) -> int:
    """Channels of the twin.

    A function of the number alone, so that layers which fitted together still do. Sums, where feature maps are
    concatenated, need a divisor of all their parts.
    """
    return channels if channels == _COLOURS else -(-channels // divisor)


def shrink_channels(model: Any, divisor: int) -> None:
    """Replaces the parameters and statistics of convolutions, batch norms and linear layers by smaller ones, in place.

    A convolution that has a group for each channel keeps one for each; other groups are divided like channels. What a
    module computes, in how many operators, is unchanged. The parameters are new and hold arbitrary values.
    """
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            _shrink_convolution(module, divisor)
        elif isinstance(module, torch.nn.Linear):
            module.in_features = fewer(module.in_features, divisor)
            module.out_features = fewer(module.out_features, divisor)
            _resize(module, "weight", module.out_features, module.in_features)
            _resize(module, "bias", module.out_features)
        elif isinstance(module, torch.nn.BatchNorm2d):
            module.num_features = fewer(module.num_features, divisor)
            for name in ("weight", "bias"):
                _resize(module, name, module.num_features)
            module.running_mean = module.running_mean[: module.num_features].clone()
            module.running_var = module.running_var[: module.num_features].clone()


def _shrink_convolution(module: Any, divisor: int) -> None:
    if module.groups == module.in_channels:
        module.groups = fewer(module.groups, divisor)
    elif module.groups > 1:
        module.groups = max(_FEWEST_GROUPS, module.groups // divisor)
    module.in_channels = fewer(module.in_channels, divisor)
    module.out_channels = fewer(module.out_channels, divisor)
    _resize(module, "weight", module.out_channels, module.in_channels // module.groups, *module.kernel_size)
    _resize(module, "bias", module.out_channels)


def _resize(module: Any, name: str, *shape: int) -> None:
    import torch

    parameter = getattr(module, name)
    if parameter is not None:
        empty = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
        setattr(module, name, torch.nn.Parameter(empty, requires_grad=False))
