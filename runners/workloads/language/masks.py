"""Attention masks, and padded input whose lengths follow the Penn Treebank's."""

from typing import Any, Callable

from runners.workloads.base import Inputs

NONE = "none"
ONES = "ones"
PTB = "ptb"

# Tokens per sentence of the Penn Treebank, as the paper gives them
_MEAN_LENGTH = 20.92
_LENGTH_STD = 10.18

# Axes of an output that has one for positions: rows, positions, features
_AXES_WITH_POSITIONS = 3


def draw_length(normal: Callable[[], float], longest: int) -> int:
    """A length from the truncated, rounded normal distribution, in 1..`longest`.

    Args:
        normal: draws from the standard normal distribution.
        longest: at least 1.
    """
    while True:
        length = round(_MEAN_LENGTH + _LENGTH_STD * normal())
        if 1 <= length <= longest:
            return length


def masked_example(tokens: Any, mask: str, generator: Any, pad_token: int, longest: int) -> Inputs:
    """One row of tokens with its mask; in a padded row everything after its length is the padding token."""
    import torch

    ones = torch.ones_like(tokens)
    if mask == ONES:
        return tokens, ones
    length = draw_length(lambda: float(torch.randn((), generator=generator)), longest)
    ones[:, length:] = 0
    return tokens.masked_fill(ones == 0, pad_token), ones


def with_mask(model: Any) -> Any:
    """A module that takes tokens and mask by position and clears the outputs of padding.

    What a model computes at padding is undefined: a backend that packs its input does not compute it at all.
    Outputs with a position axis are zero there, so that only real tokens decide verification; others, such as a
    pooled first token, pass as they are. It costs two operators for the mask, one for each such output, and one
    pass over it.
    """
    import torch

    class WithMask(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any, mask: Any) -> Any:
            padding = (mask == 0).unsqueeze(-1)
            outputs = self.model(tokens, attention_mask=mask)
            return tuple(o.masked_fill(padding, 0.0) if o.ndim == _AXES_WITH_POSITIONS else o for o in outputs)

    return WithMask()
