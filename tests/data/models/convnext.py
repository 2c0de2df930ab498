import torch
from timm.models.convnext import ConvNeXt


def build(image_size=224, shrunk=False):
    dims, side = ((16, 16, 16, 16), 32) if shrunk else ((96, 192, 384, 768), image_size)
    model = ConvNeXt(depths=(3, 3, 9, 3), dims=dims)
    return model, lambda generator: torch.randn(1, 3, side, side, generator=generator)
