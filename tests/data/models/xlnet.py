import torch
from transformers import XLNetConfig, XLNetModel


def build(sequence_length=128, shrunk=False, twin_batch=1):
    width, tokens = (24, 8) if shrunk else (768, sequence_length)
    config = XLNetConfig(d_model=width, n_layer=12, n_head=12, d_inner=4 * width)
    return XLNetModel(config), lambda generator: torch.randint(config.vocab_size, (1, tokens), generator=generator)
