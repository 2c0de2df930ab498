"""Which attention implementation a model runs."""

from typing import Any, Optional

from runners.workloads.base import Unsupported

OWN = "own"
"""The model has a single implementation, under no name that could be chosen."""


def has_choice(model_class: Any) -> bool:
    """Whether the class says that it supports SDPA; those that do also have `eager`."""
    return bool(getattr(model_class, "_supports_sdpa", False))


def choose(model_class: Any, asked: Optional[str]) -> Optional[str]:
    """The name to ask transformers for, or None if the model leaves no choice.

    A model with a choice runs exactly what was asked for, SDPA by default. All others (DeBERTa, Funnel, FNet,
    Nystromformer, Longformer, Reformer, SqueezeBERT, I-BERT, and every model of a transformers that is older than the
    choice) run their own implementation whatever was asked for: there is nothing else that they could run, and the
    default of a backend must not refuse them. The fact `attn_implementation` says what it was.

    Raises:
        Unsupported: the model has the choice, but this torch lacks what was asked for.
    """
    if not has_choice(model_class):
        return None
    name = asked or "sdpa"
    if name == "sdpa" and not _torch_has_sdpa():
        raise Unsupported("%s with SDPA: this torch has no scaled_dot_product_attention" % model_class.__name__)
    return name


def chosen(model_class: Any, config: Any) -> str:
    """The implementation that a built model runs."""
    return str(config._attn_implementation) if has_choice(model_class) else OWN


def _torch_has_sdpa() -> bool:
    import torch

    return hasattr(torch.nn.functional, "scaled_dot_product_attention")
