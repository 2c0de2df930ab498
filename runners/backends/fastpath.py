"""The fast path of `torch.nn.TransformerEncoder`: each layer is one fused operator.

With `sdpa_nested` it stands for BetterTransformer, which transformers no longer has and which called the same operator.
"""

import warnings
from typing import Any, Dict, Optional

from runners.backends.encoder import Encoder, Layer, encoder_of, mask_of
from runners.backends.preparation import preparing
from runners.backends.python_calls import count_calls_of
from runners.backends.torch_module import TorchBackend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Unsupported, Workload

_OPERATOR = "_transformer_encoder_layer_fwd"
_NESTING = "_nested_tensor_from_mask"


class FastPath(TorchBackend):
    """The workload's own embeddings and pooler around an encoder of torch that holds the same weights.

    torch leaves the fast path without a word where a condition of it fails. Whether it was taken is seen in a call
    before the first one: a trial that does not take it for every layer is refused.
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self._nests = bool(self.options["nested"]) and workload.options.get("mask", "none") != "none"
        # Making a nested tensor waits for the lengths, which a graph cannot record
        self.capturable = not self._nests

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        encoder = encoder_of(model)
        inputs = self.workload.inputs(0)
        with preparing("torch.nn.TransformerEncoder"):
            call = _forward(encoder, self._nests)
            with self.execution():
                self._layers = count_calls_of(_OPERATOR, lambda: call(*inputs))
                nested = count_calls_of(_NESTING, lambda: call(*inputs)) > 0
        if self._layers != len(encoder.layers):
            raise Unsupported("the fast path was taken for %d of %d layers" % (self._layers, len(encoder.layers)))
        if nested != self._nests:
            raise Unsupported("nested tensors were to be %s, and torch decided otherwise" % _used(self._nests))
        return call

    def facts(self) -> Dict[str, FactValue]:
        return dict(super().facts(), fastpath_layers=self._layers, fastpath_nested=self._nests)


def _used(yes: bool) -> str:
    return "used" if yes else "left out"


def _forward(encoder: Encoder, nested: bool) -> Call:
    transformer = _transformer(encoder, nested)

    def forward(*inputs: Any) -> Any:
        mask = mask_of(inputs)
        padding = None if mask is None else mask == 0
        hidden = transformer(encoder.embeddings(inputs[0]), src_key_padding_mask=padding)
        if padding is not None:
            hidden = _as_long(hidden, padding) if nested else hidden.masked_fill(padding.unsqueeze(-1), 0.0)
        return (hidden,) if encoder.pooler is None else (hidden, encoder.pooler(hidden))

    return forward


def _as_long(hidden: Any, padding: Any) -> Any:
    """What the nested path gives back: zeros stand for padding, and in old versions the longest sequence ends it."""
    import torch

    missing = padding.shape[1] - hidden.shape[1]
    return torch.nn.functional.pad(hidden, (0, 0, 0, missing)) if missing else hidden


def _transformer(encoder: Encoder, nested: bool) -> Any:
    import torch

    first = encoder.layers[0]
    layer = torch.nn.TransformerEncoderLayer(
        d_model=first.query.in_features,
        nhead=encoder.heads,
        dim_feedforward=first.intermediate.out_features,
        activation="gelu",
        layer_norm_eps=first.attention_norm.eps,
        batch_first=True,
        # Without memory and values: the parameters are replaced
        device="meta",
    )
    with warnings.catch_warnings():
        # Nested tensors are called a prototype
        warnings.simplefilter("ignore", UserWarning)
        transformer = torch.nn.TransformerEncoder(layer, len(encoder.layers), enable_nested_tensor=nested)
    for target, source in zip(transformer.layers, encoder.layers):
        _fill(target, source)
    return transformer.eval()


def _fill(target: Any, source: Layer) -> None:
    import torch

    attention, parts = target.self_attn, (source.query, source.key, source.value)
    attention.in_proj_weight = _parameter(torch.cat([part.weight for part in parts]))
    attention.in_proj_bias = _parameter(torch.cat([part.bias for part in parts]))
    for name in ("weight", "bias"):
        setattr(attention.out_proj, name, _parameter(getattr(source.attention_output, name)))
        setattr(target.norm1, name, _parameter(getattr(source.attention_norm, name)))
        setattr(target.linear1, name, _parameter(getattr(source.intermediate, name)))
        setattr(target.linear2, name, _parameter(getattr(source.output, name)))
        setattr(target.norm2, name, _parameter(getattr(source.output_norm, name)))
    # Views of the joined matrix, so that the weights are not in memory twice
    for index, part in enumerate(parts):
        size = part.out_features
        part.weight.data = attention.in_proj_weight.data[index * size : (index + 1) * size]
        part.bias.data = attention.in_proj_bias.data[index * size : (index + 1) * size]


def _parameter(tensor: Any) -> Any:
    import torch

    return torch.nn.Parameter(tensor.detach(), requires_grad=False)
