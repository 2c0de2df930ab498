"""Models of images, from torchvision and timm: one row each, which is all that a new one needs. Weights are random."""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Dict, Mapping, Optional

from runners.contract.catalogue.entries import SIZE, VISION, Choice, OptionInfo, WorkloadInfo
from runners.contract.spec import WorkloadSpec

CHANNELS_LAST: OptionInfo = Choice(allowed=(False, True), default=False)
"""Whether weights and images lie in memory with the channel as the fastest axis. A layout of torch: backends of
other frameworks choose their own."""

_CLASSES = 1000

# The batch norm at the end of each branch that is added to a shortcut
_BASIC_BLOCKS = r"^layer\d\.\d+\.bn2$"
_BOTTLENECKS = r"^layer\d\.\d+\.bn3$"


@dataclass(frozen=True)
class VisionModel:
    """One model of a library, and the square images that it takes, in pixels of height and width."""

    library_model: str
    """The library and its name for the model."""
    parameters: int
    """As published; those of branches that only training has are not counted."""
    builder: str
    """`module:function` that makes it."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    default: int = 224
    smallest: int = 1
    """torchvision publishes it with its weights, as `min_size`."""
    step: int = 1
    """Every size is a multiple of it."""
    branches: Optional[str] = None
    """Regular expression of the norms that end residual branches; None where random weights do without."""
    twin_width: int = 16
    """Channels of the shrunk twin of a network of convolutions and batch norms."""
    twin_image: int = 8
    """Side of the images of a shrunk twin, in pixels, unless the network needs larger ones."""
    twin: Mapping[str, Any] = field(default_factory=dict)
    """Arguments in which the shrunk twin differs, of any other network: its channels are not narrowed."""
    is_transformer: bool = False
    """It has attention, and is made for one size of image, which is an argument `img_size`."""

    @property
    def library(self) -> str:
        """Where it is from."""
        return self.library_model.partition(" ")[0]


def _torchvision(
    name: str, parameters: int, arguments: Mapping[str, Any] = MappingProxyType({}), **settings: Any
) -> VisionModel:
    module = settings.pop("module", "torchvision.models")
    return VisionModel("torchvision " + name, parameters, module + ":" + name, arguments, **settings)


def _timm(name: str, parameters: int, **settings: Any) -> VisionModel:
    return VisionModel("timm " + name, parameters, "timm.models:" + name, {"num_classes": _CLASSES}, **settings)


def _vision_transformer(
    name: str, parameters: int, patch_size: int, embed_dim: int, depth: int, num_heads: int
) -> VisionModel:
    # Not by its name: for a twin the widths must be arguments, which only recent functions let one give
    arguments = {"patch_size": patch_size, "embed_dim": embed_dim, "depth": depth, "num_heads": num_heads}
    return VisionModel(
        "timm " + name,
        parameters,
        "timm.models.vision_transformer:VisionTransformer",
        dict(arguments, num_classes=_CLASSES),
        smallest=patch_size,
        step=patch_size,
        twin={"embed_dim": 4 * num_heads},
        is_transformer=True,
    )


# Without the branches for the training loss, which inference does not have; and without an initialiser's warning
_INCEPTION = {"aux_logits": False, "init_weights": False}

# Windows of pooling that hang over the edge of smaller images are written into the graph as something else
_HANGING_WINDOWS = 32

IMAGES: Dict[str, VisionModel] = {
    "resnet18": _torchvision("resnet18", 11_689_512, branches=_BASIC_BLOCKS),
    "resnet50": _torchvision("resnet50", 25_557_032, branches=_BOTTLENECKS),
    "resnet101": _torchvision("resnet101", 44_549_160, branches=_BOTTLENECKS),
    "resnet152": _torchvision("resnet152", 60_192_808, branches=_BOTTLENECKS),
    "alexnet": _torchvision("alexnet", 61_100_840, smallest=63),
    "squeezenet1-0": _torchvision("squeezenet1_0", 1_248_424, smallest=21, twin_image=_HANGING_WINDOWS),
    "vgg16": _torchvision("vgg16", 138_357_544, smallest=32),
    "densenet161": _torchvision("densenet161", 28_681_000, smallest=29),
    "inception-v3": _torchvision("inception_v3", 23_834_568, _INCEPTION, default=299, smallest=75),
    "googlenet": _torchvision("googlenet", 6_624_904, _INCEPTION, smallest=15, twin_image=_HANGING_WINDOWS),
    "shufflenet-v2": _torchvision("shufflenet_v2_x1_0", 2_278_604),
    # The paper took the float model of the module that holds the quantisable one
    "mobilenet-v2": _torchvision(
        "mobilenet_v2",
        3_504_872,
        {"quantize": False},
        module="torchvision.models.quantization",
        branches=r"^features\.(3|5|6|8|9|10|12|13|15|16)\.conv\.3$",
    ),
    # Two of the groups of 16 channels that its third stage has
    "resnext50": _torchvision("resnext50_32x4d", 25_028_904, branches=_BOTTLENECKS, twin_width=32),
    "wide-resnet50": _torchvision("wide_resnet50_2", 68_883_240, branches=_BOTTLENECKS),
    "mnasnet1-0": _torchvision("mnasnet1_0", 4_383_312, branches=r"^layers\.\d+\.[1-9]\.layers\.7$"),
    "vit-base-16": _vision_transformer("vit_base_patch16_224", 86_567_656, 16, embed_dim=768, depth=12, num_heads=12),
    "vit-base-32": _vision_transformer("vit_base_patch32_224", 88_224_232, 32, embed_dim=768, depth=12, num_heads=12),
    "vit-large-16": _vision_transformer(
        "vit_large_patch16_224", 304_326_632, 16, embed_dim=1024, depth=24, num_heads=16
    ),
    "vit-large-32": _vision_transformer(
        "vit_large_patch32_224", 306_535_400, 32, embed_dim=1024, depth=24, num_heads=16
    ),
    "efficientnetv2-m": _timm(
        "efficientnetv2_m",
        54_139_356,
        branches=r"^blocks\.(0\.\d+\.bn1|[12]\.[1-9]\d*\.bn2|[3-6]\.[1-9]\d*\.bn3)$",
    ),
    "efficientnet-lite1": _timm("efficientnet_lite1", 5_416_680, branches=r"^blocks\.[1-6]\.[1-9]\d*\.bn3$"),
    "gernet-m": _timm("gernet_m", 21_142_920, branches=r"^stages\.\d+\.\d+\.conv(2_kxk|3_1x1)\.bn$"),
}


def problem(spec: WorkloadSpec) -> Optional[str]:
    """Why the model takes no image of this size, in one line; None if it does."""
    images, size = IMAGES[spec.name], spec.image_size
    assert size is not None
    if size >= images.smallest and size % images.step == 0:
        return None
    expected = "a multiple of %d" % images.step if images.step > 1 else "%d or more" % images.smallest
    return "image_size of workload %s is %s, not %d" % (spec.name, expected, size)


WORKLOADS: Dict[str, WorkloadInfo] = {
    name: WorkloadInfo(
        family=VISION,
        frameworks=("torch", model.library),
        about=model.library_model,
        image_size=model.default,
        options={"size": SIZE} if model.is_transformer else {"size": SIZE, "channels_last": CHANNELS_LAST},
        parameters=model.parameters,
        problem=problem,
    )
    for name, model in IMAGES.items()
}
