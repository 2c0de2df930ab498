"""Models of images, from torchvision and timm."""

from dataclasses import dataclass
from typing import Dict, Optional

from runners.contract.catalogue.entries import VISION, Choice, OptionInfo, WorkloadInfo
from runners.contract.spec import WorkloadSpec

SIZE: OptionInfo = Choice(allowed=("full", "shrunk"), default="full")
"""`shrunk`: the same layers and operators with next to no arithmetic, for the dispatch floor."""
CHANNELS_LAST: OptionInfo = Choice(allowed=(False, True), default=False)
"""Whether weights and images lie in memory with the channel as the fastest axis. A layout of torch: backends of
other frameworks choose their own."""


@dataclass(frozen=True)
class Images:
    """The square images that a model takes, in pixels of height and width, and its size."""

    parameters: int
    """As published, rounded."""
    default: int = 224
    smallest: int = 1
    """torchvision publishes it with its weights, as `min_size`."""
    step: int = 1
    """Every size is a multiple of it."""


TORCHVISION = {
    "resnet18": Images(11_700_000),
    "resnet50": Images(25_600_000),
    "resnet101": Images(44_500_000),
    "resnet152": Images(60_200_000),
    "alexnet": Images(61_100_000, smallest=63),
    "squeezenet1-0": Images(1_200_000, smallest=21),
    "vgg16": Images(138_400_000, smallest=32),
    "densenet161": Images(28_700_000, smallest=29),
    "inception-v3": Images(27_200_000, default=299, smallest=75),
    "googlenet": Images(6_600_000, smallest=15),
    "shufflenet-v2": Images(2_300_000),
    "mobilenet-v2": Images(3_500_000),
    "resnext50": Images(25_000_000),
    "wide-resnet50": Images(68_900_000),
    "mnasnet1-0": Images(4_400_000),
}
TIMM = {
    "vit-base-16": Images(86_600_000, smallest=16, step=16),
    "vit-base-32": Images(88_200_000, smallest=32, step=32),
    "vit-large-16": Images(304_300_000, smallest=16, step=16),
    "vit-large-32": Images(306_500_000, smallest=32, step=32),
    "efficientnetv2-m": Images(54_100_000),
    "efficientnet-lite1": Images(5_400_000),
    "gernet-m": Images(21_100_000),
}
IMAGES = {**TORCHVISION, **TIMM}


def problem(spec: WorkloadSpec) -> Optional[str]:
    """Why the model takes no image of this size, in one line; None if it does."""
    images, size = IMAGES[spec.name], spec.image_size
    assert size is not None
    if size >= images.smallest and size % images.step == 0:
        return None
    expected = "a multiple of %d" % images.step if images.step > 1 else "%d or more" % images.smallest
    return "image_size of workload %s is %s, not %d" % (spec.name, expected, size)


def _classifier(name: str, library: str, images: Images) -> WorkloadInfo:
    options = {"size": SIZE}
    if not name.startswith("vit-"):
        options["channels_last"] = CHANNELS_LAST
    return WorkloadInfo(
        family=VISION,
        frameworks=("torch", library),
        image_size=images.default,
        options=options,
        parameters=images.parameters,
        problem=problem,
    )


WORKLOADS: Dict[str, WorkloadInfo] = {
    **{name: _classifier(name, "torchvision", images) for name, images in TORCHVISION.items()},
    **{name: _classifier(name, "timm", images) for name, images in TIMM.items()},
}
