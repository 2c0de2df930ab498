"""The image classifiers of the paper, one line each: what the library calls them and how their twins are made."""

import importlib
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Dict, Mapping, Optional

_CLASSES = 1000

# The batch norm at the end of each branch that is added to a shortcut
_BASIC_BLOCKS = r"^layer\d\.\d+\.bn2$"
_BOTTLENECKS = r"^layer\d\.\d+\.bn3$"


@dataclass(frozen=True)
class Classifier:
    """How a model is made. The weights are random: no checkpoint is read."""

    library_model: str
    """The library and its name for the model."""
    builder: str
    """`module:function` that makes it."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    branches: Optional[str] = None
    """Regular expression of the norms that end residual branches; None where random weights do without."""
    twin_width: int = 16
    """Channels of the shrunk twin of a convolutional network."""
    twin_image: int = 8
    """Side of the images of a shrunk twin, in pixels, unless the network needs larger ones."""
    twin: Mapping[str, Any] = field(default_factory=dict)
    """Arguments in which the shrunk twin of a transformer differs."""

    @property
    def is_transformer(self) -> bool:
        """Whether it has attention, and is made for one size of image."""
        return bool(self.twin)

    def build(self, **arguments: Any) -> Any:
        """The library's model. The library is imported, and with timm torchvision too."""
        from runners.workloads import torchvision_import  # noqa: F401

        module, _, function = self.builder.partition(":")
        return getattr(importlib.import_module(module), function)(**dict(self.arguments, **arguments))


def _torchvision(
    name: str,
    branches: Optional[str] = None,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    module: str = "torchvision.models",
    twin_width: int = 16,
    twin_image: int = 8,
) -> Classifier:
    return Classifier("torchvision " + name, module + ":" + name, arguments, branches, twin_width, twin_image)


def _timm(name: str, branches: str) -> Classifier:
    return Classifier("timm " + name, "timm.models:" + name, {"num_classes": _CLASSES}, branches)


def _vision_transformer(name: str, patch_size: int, embed_dim: int, depth: int, num_heads: int) -> Classifier:
    # Not by its name: for a twin the widths must be arguments, which only recent functions let one give
    arguments = {"patch_size": patch_size, "embed_dim": embed_dim, "depth": depth, "num_heads": num_heads}
    return Classifier(
        "timm " + name,
        "timm.models.vision_transformer:VisionTransformer",
        dict(arguments, num_classes=_CLASSES),
        twin={"embed_dim": 4 * num_heads},
    )


# Without the branches for the training loss, which inference does not have; and without an initialiser's warning
_INCEPTION = {"aux_logits": False, "init_weights": False}

# Windows of pooling that hang over the edge of smaller images are written into the graph as something else
_HANGING_WINDOWS = 32

TORCHVISION: Dict[str, Classifier] = {
    "resnet18": _torchvision("resnet18", _BASIC_BLOCKS),
    "resnet50": _torchvision("resnet50", _BOTTLENECKS),
    "resnet101": _torchvision("resnet101", _BOTTLENECKS),
    "resnet152": _torchvision("resnet152", _BOTTLENECKS),
    "alexnet": _torchvision("alexnet"),
    "squeezenet1-0": _torchvision("squeezenet1_0", twin_image=_HANGING_WINDOWS),
    "vgg16": _torchvision("vgg16"),
    "densenet161": _torchvision("densenet161"),
    "inception-v3": _torchvision("inception_v3", arguments=_INCEPTION),
    "googlenet": _torchvision("googlenet", arguments=_INCEPTION, twin_image=_HANGING_WINDOWS),
    "shufflenet-v2": _torchvision("shufflenet_v2_x1_0"),
    # The paper took the float model of the module that holds the quantisable one
    "mobilenet-v2": _torchvision(
        "mobilenet_v2",
        r"^features\.(3|5|6|8|9|10|12|13|15|16)\.conv\.3$",
        {"quantize": False},
        module="torchvision.models.quantization",
    ),
    # Two of the groups of 16 channels that its third stage has
    "resnext50": _torchvision("resnext50_32x4d", _BOTTLENECKS, twin_width=32),
    "wide-resnet50": _torchvision("wide_resnet50_2", _BOTTLENECKS),
    "mnasnet1-0": _torchvision("mnasnet1_0", r"^layers\.\d+\.[1-9]\.layers\.7$"),
}

TIMM: Dict[str, Classifier] = {
    "vit-base-16": _vision_transformer("vit_base_patch16_224", 16, embed_dim=768, depth=12, num_heads=12),
    "vit-base-32": _vision_transformer("vit_base_patch32_224", 32, embed_dim=768, depth=12, num_heads=12),
    "vit-large-16": _vision_transformer("vit_large_patch16_224", 16, embed_dim=1024, depth=24, num_heads=16),
    "vit-large-32": _vision_transformer("vit_large_patch32_224", 32, embed_dim=1024, depth=24, num_heads=16),
    "efficientnetv2-m": _timm("efficientnetv2_m", r"^blocks\.(0\.\d+\.bn1|[12]\.[1-9]\d*\.bn2|[3-6]\.[1-9]\d*\.bn3)$"),
    "efficientnet-lite1": _timm("efficientnet_lite1", r"^blocks\.[1-6]\.[1-9]\d*\.bn3$"),
    "gernet-m": _timm("gernet_m", r"^stages\.\d+\.\d+\.conv(2_kxk|3_1x1)\.bn$"),
}
