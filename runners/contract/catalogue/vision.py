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
    """The square images that a model takes, in pixels of height and width."""

    default: int = 224
    smallest: int = 1
    """torchvision publishes it with its weights, as `min_size`."""
    step: int = 1
    """Every size is a multiple of it."""


_PATCHES_16 = Images(smallest=16, step=16)
_PATCHES_32 = Images(smallest=32, step=32)

TORCHVISION = {
    "resnet18": Images(),
    "resnet50": Images(),
    "resnet101": Images(),
    "resnet152": Images(),
    "alexnet": Images(smallest=63),
    "squeezenet1-0": Images(smallest=21),
    "vgg16": Images(smallest=32),
    "densenet161": Images(smallest=29),
    "inception-v3": Images(default=299, smallest=75),
    "googlenet": Images(smallest=15),
    "shufflenet-v2": Images(),
    "mobilenet-v2": Images(),
    "resnext50": Images(),
    "wide-resnet50": Images(),
    "mnasnet1-0": Images(),
}
TIMM = {
    "vit-base-16": _PATCHES_16,
    "vit-base-32": _PATCHES_32,
    "vit-large-16": _PATCHES_16,
    "vit-large-32": _PATCHES_32,
    "efficientnetv2-m": Images(),
    "efficientnet-lite1": Images(),
    "gernet-m": Images(),
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
        family=VISION, frameworks=("torch", library), image_size=images.default, options=options, problem=problem
    )


WORKLOADS: Dict[str, WorkloadInfo] = {
    **{name: _classifier(name, "torchvision", images) for name, images in TORCHVISION.items()},
    **{name: _classifier(name, "timm", images) for name, images in TIMM.items()},
}
