"""Models of images."""

from runners.contract.catalogue.entries import VISION, Choice, OptionInfo, WorkloadInfo

SIZE: OptionInfo = Choice(allowed=("full", "shrunk"), default="full")
"""`shrunk`: the same layers and operators with next to no arithmetic, for the dispatch floor."""

WORKLOADS = {
    "resnet50": WorkloadInfo(
        family=VISION, frameworks=("torch", "transformers"), image_size=224, options={"size": SIZE}
    ),
}
