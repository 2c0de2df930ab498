"""Image classifiers with 1000 classes; the output is the logits."""

import importlib
import re
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional

from runners.contract import TrialSpec, WorkloadSpec
from runners.contract.catalogue import BACKENDS
from runners.contract.catalogue import vision as catalogue
from runners.contract.record import FactValue
from runners.workloads.base import Inputs, Unsupported
from runners.workloads.construction import allocate, without_storage
from runners.workloads.library_model import TWIN_BATCH, LibraryModel
from runners.workloads.micro_modules import EAGER, SDPA, has_sdpa, with_one_output
from runners.workloads.tensors import PRELOAD
from runners.workloads.vision_twin import shrink_channels

_SHAPES_PER_SIDE = 4
_OWN_ATTENTION = "own"


class ImageClassifier(LibraryModel):
    """A model of torchvision or timm; the name of the trial's workload picks its row."""

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec)
        self.row = catalogue.IMAGES[spec.workload.name]
        more = ("torchvision.models.quantization",) if self.row.library == "torchvision" else ()
        self.preload = (*PRELOAD, self.row.library, *more)

    @property
    def image_size(self) -> int:
        """Height and width in pixels."""
        size = self.spec.workload.image_size
        assert size is not None
        return size

    @property
    def channels_last(self) -> bool:
        """Whether the channel is the fastest axis in memory."""
        return bool(self.options.get("channels_last"))

    def arguments(self) -> Dict[str, Any]:
        """What the builder of this trial's network is called with."""
        size = {"img_size": self.image_size} if self.row.is_transformer else {}
        return {**self.row.arguments, **(self.row.twin if self.is_shrunk else {}), **size}

    def choose_attention(self, network: Any, attention: Optional[str]) -> None:
        """Sets the attention implementation of a network that has one.

        Raises:
            Unsupported: it cannot have the one that is asked for.
        """
        name = attention or SDPA
        if not self.row.is_transformer:
            if name != SDPA:
                raise Unsupported("workload %s has no attention to choose" % self.spec.workload.name)
            return
        layers = _layers_with_choice(network)
        # A timm that is older than the choice runs its own: there is nothing else that it could run
        if layers and name == SDPA and not has_sdpa():
            raise Unsupported("this torch has no scaled_dot_product_attention")
        for layer in layers:
            layer.fused_attn = name == SDPA

    def construct(self, attention: Optional[str]) -> Any:
        problem = catalogue.problem(self.spec.workload)
        if problem is not None:
            raise Unsupported(problem)
        backend = self.spec.backend.name
        if self.channels_last and BACKENDS[backend].frameworks != ("torch",):
            raise Unsupported("channels_last is a layout of torch; backend %s chooses its own" % backend)
        network = network_of(self.row.builder, self.arguments())
        self.choose_attention(network, attention)
        if self.is_shrunk and not self.row.twin:
            shrink_channels(network, self.row.twin_width, self.image_size)
        return with_one_output(allocate(network))

    def build(self, attention: Optional[str] = None) -> Any:
        model = super().build(attention)
        if self.row.branches is not None:
            damp_branches(model.body, self.row.branches)
        if not self.channels_last:
            return model
        import torch

        return model.to(memory_format=torch.channels_last)

    def example(self, generator: Any) -> Inputs:
        import torch

        size = self.image_size
        # Grain, large shapes and a tint. Grain alone averages out in every network that pools, and the outputs of
        # two images would differ by little more than a dtype's rounding.
        grain = torch.randn(1, 3, size, size, generator=generator)
        shapes = torch.randn(1, 3, _SHAPES_PER_SIDE, _SHAPES_PER_SIDE, generator=generator)
        tint = torch.randn(1, 3, 1, 1, generator=generator)
        return ((grain + torch.nn.functional.interpolate(shapes, size=(size, size)) + tint) / 3**0.5,)

    def inputs(self, index: int) -> Inputs:
        import torch

        (images,) = super().inputs(index)
        return (images.contiguous(memory_format=torch.channels_last),) if self.channels_last else (images,)

    def facts(self, model: Any) -> Dict[str, FactValue]:
        layout = "channels_last" if self.channels_last else "contiguous"
        facts = dict(super().facts(model), library_model=self.row.library_model, memory_format=layout)
        if self.row.is_transformer:
            chosen = {SDPA if layer.fused_attn else EAGER for layer in _layers_with_choice(model)}
            facts["attn_implementation"] = ", ".join(chosen) or _OWN_ATTENTION
        return facts

    def shrunk(self) -> WorkloadSpec:
        size = min(self.image_size, max(self.row.twin_image, self.row.smallest))
        return replace(super().shrunk(), batch=TWIN_BATCH, image_size=size)


def network_of(builder: str, arguments: Mapping[str, Any]) -> Any:
    """A model of a library without weights. The library is imported, and with timm torchvision too.

    Raises:
        Unsupported: this version of it has no such model.
    """
    from runners.workloads import torchvision_import  # noqa: F401

    module, _, function = builder.partition(":")
    try:
        build = getattr(importlib.import_module(module), function)
    except AttributeError:
        raise Unsupported("the environment has no %s in %s" % (function, module)) from None
    with without_storage():
        return build(**arguments)


def _layers_with_choice(network: Any) -> List[Any]:
    return [module for module in network.modules() if hasattr(module, "fused_attn")]


def damp_branches(network: Any, pattern: str) -> None:
    """Scales what N residual branches add by 1 / sqrt(N), in the weights of the norms that end them.

    With fresh running statistics a batch norm normalises nothing: each branch would add as much variance as its
    input has, and float16 would overflow after 30 blocks. The rule is GPT-2's (Radford et al., 2019, section 2.3).
    """
    norms = [module for name, module in network.named_modules() if re.search(pattern, name)]
    for norm in norms:
        norm.weight.data.mul_(len(norms) ** -0.5)
