import torch
from transformers import ElectraConfig, ElectraModel


def build(sequence_length=128, shrunk=False):
    width = 24 if shrunk else 768
    config = ElectraConfig(embedding_size=width, hidden_size=width, num_attention_heads=12, intermediate_size=4 * width)
    tokens = (1, 8 if shrunk else sequence_length)
    return ElectraModel(config), lambda generator: torch.randint(config.vocab_size, tokens, generator=generator)
