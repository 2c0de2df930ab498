"""Image classifiers: images of normal noise."""

from typing import Any, Optional

from runners.workloads.base import Unsupported
from runners.workloads.tensors import TensorWorkload


class ResNet50(TensorWorkload):
    """ResNet-50 with 1000 classes; the output is the logits."""

    preload = ("torch", "transformers", "transformers.models.resnet.modeling_resnet")

    def construct(self, attention: Optional[str]) -> Any:
        from transformers import ResNetConfig, ResNetForImageClassification
        from transformers.initialization import no_init_weights

        if attention not in (None, "sdpa"):
            raise Unsupported("workload %s has no attention to choose" % self.spec.workload.name)
        with no_init_weights():
            return ResNetForImageClassification(ResNetConfig(return_dict=False, num_labels=1000))

    def example(self, generator: Any) -> Any:
        import torch

        size = self.spec.workload.image_size
        assert size is not None
        return torch.randn(1, 3, size, size, generator=generator)
