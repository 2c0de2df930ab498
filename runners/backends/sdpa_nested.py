"""SDPA over real tokens alone: a padded batch is packed, and attention runs on nested tensors.

With `fastpath` it stands for BetterTransformer, which transformers no longer has. All but attention works on one matrix
whose rows are the real tokens of the batch; attention gets the same rows as a nested tensor of the layout `jagged`.
Packing and unpacking belong to the call, as does reading the lengths from the mask, for which a GPU is waited for.
"""

from dataclasses import dataclass
from typing import Any, ContextManager, Dict, Optional, cast

from runners.backends.attention_kernels import attention_operators
from runners.backends.encoder import Encoder, Layer, encoder_of, mask_of
from runners.backends.preparation import preparing
from runners.backends.torch_module import TorchBackend
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported, Workload


@dataclass(frozen=True)
class _Rows:
    """Where the rows of the packed matrix come from."""

    indices: Any
    """Of each row in the flattened batch."""
    offsets: Any
    """Where each sequence begins, and the end of the last."""
    shortest: int
    longest: int


class SdpaNested(TorchBackend):
    """Without a mask there is nothing to pack: the same code runs on the dense batch, and the facts say so."""

    capturable = False

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self._packed = self.workload.options.get("mask", "none") != "none"

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        import torch

        if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
            raise Unsupported("torch %s has no scaled_dot_product_attention" % torch.__version__)
        if self._packed and not hasattr(torch.nested, "nested_tensor_from_jagged"):
            raise Unsupported("torch %s has no nested tensors of the layout jagged" % torch.__version__)
        call = _forward(encoder_of(model))
        with preparing("SDPA on nested tensors"), self.execution():
            # Support differs by device and dtype, and shows when it is used
            call(*self.workload.inputs(0))
        return call

    def execution(self) -> ContextManager[Any]:
        import torch

        # Views of nested tensors need version counters, which tensors of inference mode do not have
        return cast("ContextManager[Any]", torch.no_grad()) if self._packed else super().execution()

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        # Packed attention takes a number of operators that depends on the sequences; a twin has other ones
        return None if self._packed else super().operations(call, inputs)

    def facts(self) -> Dict[str, FactValue]:
        return dict(super().facts(), packed=self._packed)

    def counted(self, call: Call, inputs: Inputs) -> Dict[str, FactValue]:
        return {"attention_operators": attention_operators(lambda: call(*inputs))}


def _forward(encoder: Encoder) -> Call:
    def forward(*inputs: Any) -> Any:
        mask = mask_of(inputs)
        hidden = encoder.embeddings(inputs[0])
        shape = hidden.shape
        rows = None if mask is None else _rows(mask)
        if rows is not None:
            hidden = hidden.flatten(0, 1)[rows.indices]
        for layer in encoder.layers:
            hidden = _layer(layer, encoder.heads, hidden, rows)
        if rows is not None:
            hidden = hidden.new_zeros(shape).flatten(0, 1).index_copy_(0, rows.indices, hidden).view(shape)
        return (hidden,) if encoder.pooler is None else (hidden, encoder.pooler(hidden))

    return forward


def _rows(mask: Any) -> _Rows:
    import torch

    lengths = mask.sum(1)
    known = lengths.tolist()
    return _Rows(
        indices=mask.flatten().nonzero().flatten(),
        offsets=torch.nn.functional.pad(lengths.cumsum(0), (1, 0)),
        shortest=min(known),
        longest=max(known),
    )


def _layer(layer: Layer, heads: int, hidden: Any, rows: Optional[_Rows]) -> Any:
    import torch

    functional = torch.nn.functional
    query, key, value = (_split(linear(hidden), heads, rows) for linear in (layer.query, layer.key, layer.value))
    context = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    context = context.flatten(-2) if rows is None else context.values().flatten(-2)
    hidden = layer.attention_norm(layer.attention_output(context) + hidden)
    inner = functional.gelu(layer.intermediate(hidden))
    return layer.output_norm(layer.output(inner) + hidden)


def _split(projected: Any, heads: int, rows: Optional[_Rows]) -> Any:
    """Sequences x heads x tokens x width of a head; nested if packed."""
    import torch

    apart = projected.unflatten(-1, (heads, -1))
    if rows is not None:
        apart = torch.nested.nested_tensor_from_jagged(
            apart, rows.offsets, min_seqlen=rows.shortest, max_seqlen=rows.longest
        )
    return apart.transpose(1, 2)
