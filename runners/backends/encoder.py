"""The parts of a BERT-like encoder, for backends that run the same weights in another way.

The encoders of BERT, RoBERTa and DistilBERT are one structure under three sets of names: post-norm layers of attention
and an exact GELU. Other architectures differ in something that these backends could not map exactly.
"""

from dataclasses import dataclass
from typing import Any, Optional, Tuple

from runners.workloads.base import Inputs, Unsupported

_KNOWN = ("BertModel", "RobertaModel", "DistilBertModel")


@dataclass(frozen=True)
class Layer:
    """The modules of one layer: linear maps and layer norms."""

    query: Any
    key: Any
    value: Any
    attention_output: Any
    attention_norm: Any
    intermediate: Any
    output: Any
    output_norm: Any


@dataclass(frozen=True)
class Encoder:
    """Embeddings, layers and, where the model has one, the pooler of the first token."""

    embeddings: Any
    layers: Tuple[Layer, ...]
    pooler: Optional[Any]
    heads: int


def encoder_of(model: Any) -> Encoder:
    """The parts of a workload's model, which may stand in a wrapper.

    Raises:
        Unsupported: it is no such encoder, or not with these settings.
    """
    found = [module for module in model.modules() if type(module).__name__ in _KNOWN]
    if len(found) != 1:
        name = type(model).__name__
        raise Unsupported("only encoders structured as BERT can be mapped exactly (%s), not %s" % (_listed(), name))
    [inner] = found
    outside = {id(p) for p in model.parameters()} - {id(p) for p in inner.parameters()}
    if outside:
        raise Unsupported("%s has %d parameters outside its encoder" % (type(model).__name__, len(outside)))
    return _distilbert(inner) if type(inner).__name__ == "DistilBertModel" else _bert(inner)


def mask_of(inputs: Inputs) -> Optional[Any]:
    """The attention mask among a text model's inputs: 1 for real tokens, 0 for padding; None if there is none."""
    return inputs[1] if len(inputs) > 1 else None


def _bert(model: Any) -> Encoder:
    config = model.config
    _require("hidden_act", config.hidden_act, "gelu")
    _require("is_decoder", getattr(config, "is_decoder", False), False)
    # transformers before 5 has more kinds
    _require("position_embedding_type", getattr(config, "position_embedding_type", "absolute"), "absolute")
    layers = [
        Layer(
            query=layer.attention.self.query,
            key=layer.attention.self.key,
            value=layer.attention.self.value,
            attention_output=layer.attention.output.dense,
            attention_norm=layer.attention.output.LayerNorm,
            intermediate=layer.intermediate.dense,
            output=layer.output.dense,
            output_norm=layer.output.LayerNorm,
        )
        for layer in model.encoder.layer
    ]
    return Encoder(model.embeddings, tuple(layers), getattr(model, "pooler", None), config.num_attention_heads)


def _distilbert(model: Any) -> Encoder:
    _require("activation", model.config.activation, "gelu")
    layers = [
        Layer(
            query=layer.attention.q_lin,
            key=layer.attention.k_lin,
            value=layer.attention.v_lin,
            attention_output=layer.attention.out_lin,
            attention_norm=layer.sa_layer_norm,
            intermediate=layer.ffn.lin1,
            output=layer.ffn.lin2,
            output_norm=layer.output_layer_norm,
        )
        for layer in model.transformer.layer
    ]
    return Encoder(model.embeddings, tuple(layers), None, model.config.n_heads)


def _require(name: str, value: object, needed: object) -> None:
    if value != needed:
        raise Unsupported("the encoder has %s %r; only %r can be mapped exactly" % (name, value, needed))


def _listed() -> str:
    return ", ".join(name[: -len("Model")] for name in _KNOWN)
