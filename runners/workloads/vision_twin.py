"""The shrunk twin of a convolutional network: every layer and operator stays, with a handful of channels."""

from typing import Any, Tuple

_BLOCK = 16
_FEWEST_GROUPS = 2


def fewer(channels: int, width: int) -> int:
    """How many of its output channels a layer of the twin keeps.

    They are `width`, a multiple of 16, and what the layer has beyond a multiple of 16. Frameworks compute channels in
    blocks of 8 or 16 on a CPU, and which operators they put into their graphs depends on whether the blocks are full.
    """
    return channels if channels < 2 * width else width + channels % _BLOCK


def shrink_channels(network: Any, width: int, image_size: int) -> None:
    """Replaces convolutions, batch norms and linear layers by narrow ones, in place; their parameters become zeros.

    One image passes through the network, and each layer is made for the channels that arrive: so those fit together
    that were added, concatenated or split. A convolution that has a group for each channel keeps one for each, and
    other groups keep their size.
    """
    import torch

    def fit(layer: Any, arguments: Tuple[Any, ...]) -> None:
        (arriving,) = arguments
        if isinstance(layer, torch.nn.Conv2d):
            _fit_convolution(layer, arriving.shape[1], width)
        elif isinstance(layer, torch.nn.BatchNorm2d):
            _fit_norm(layer, arriving.shape[1])
        else:
            _fit_linear(layer, arriving.shape[-1], width)

    kinds = (torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.nn.Linear)
    hooks = [layer.register_forward_pre_hook(fit) for layer in network.modules() if isinstance(layer, kinds)]
    with torch.no_grad():
        network.eval()(torch.zeros(1, 3, image_size, image_size))
    for hook in hooks:
        hook.remove()


def _fit_convolution(layer: Any, channels: int, width: int) -> None:
    group = layer.in_channels // layer.groups
    if layer.groups > 1 and group == 1:
        layer.out_channels = layer.out_channels // layer.groups * channels
        layer.groups = channels
    else:
        layer.out_channels = fewer(layer.out_channels, width)
        if layer.groups > 1:
            layer.groups = max(_FEWEST_GROUPS, channels // group)
    layer.in_channels = channels
    _resize(layer, "weight", layer.out_channels, channels // layer.groups, *layer.kernel_size)
    _resize(layer, "bias", layer.out_channels)


def _fit_norm(layer: Any, channels: int) -> None:
    layer.num_features = channels
    for name in ("weight", "bias"):
        _resize(layer, name, channels)
    layer.running_mean = layer.running_mean[:channels].clone()
    layer.running_var = layer.running_var[:channels].clone()


def _fit_linear(layer: Any, features: int, width: int) -> None:
    layer.in_features, layer.out_features = features, fewer(layer.out_features, width)
    _resize(layer, "weight", layer.out_features, features)
    _resize(layer, "bias", layer.out_features)


def _resize(layer: Any, name: str, *shape: int) -> None:
    import torch

    if getattr(layer, name) is not None:
        setattr(layer, name, torch.nn.Parameter(torch.zeros(shape), requires_grad=False))
