"""Reformer, whose chunks decide which lengths can be measured."""

from typing import Any, Optional, Tuple

from runners.contract import WorkloadSpec
from runners.workloads.base import Unsupported
from runners.workloads.language.text import Entry, Text, modules


class ReformerEnwik8(Text):
    """`google/reformer-enwik8`: on bytes, causal, with reversible layers and axial positions; no pooler.

    Outside training the model cuts its axial table of positions, 128 x 512 in the checkpoint, to what a sequence
    needs: the table stays as it is, for any length. Chunks set the limit. Up to 128 tokens all attention is
    within one chunk; up to 256, to which the model then pads, local layers have two. Beyond that the layers of
    locality-sensitive hashing begin to hash, with rotations drawn at each call that differ between dtypes: there is no
    right answer to compare with, and such lengths are unsupported.
    """

    preload = modules("reformer")
    entry = Entry(
        "ReformerConfig",
        "ReformerModel",
        258,
        sizes={
            "hidden_size": 1024,
            "num_attention_heads": 8,
            "attention_head_size": 128,
            "feed_forward_size": 4096,
            "attn_layers": ["local", "local", "lsh", "local"] * 3,
            "num_hashes": 4,
            "num_buckets": 512,
            "local_attn_chunk_length": 128,
            "lsh_attn_chunk_length": 256,
            "axial_pos_shape": [128, 512],
            "axial_pos_embds_dim": [256, 768],
            "max_position_embeddings": 65536,
            "is_decoder": True,
            "use_cache": False,
        },
        twin={
            "hidden_size": 16,
            "attention_head_size": 2,
            "feed_forward_size": 64,
            "axial_pos_embds_dim": [4, 12],
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 8,
        },
        # The model looks its positions up row by row
        twin_rows=(1, 1 << 20),
        longest=256,
    )

    def construct(self, attention: Optional[str]) -> Any:
        module = super().construct(attention)
        self._mask_values = {name: value.clone() for name, value in module.named_buffers()}
        return module

    def reference(self, index: int, model: Any, double: bool) -> Tuple[Any, ...]:
        if double:
            # What float64 puts in place of masked scores became infinite in float16, which has values of its own
            model = model.to("cpu").double()
            for name, value in model.named_buffers():
                value.copy_(self._mask_values[name])
        return super().reference(index, model, double)

    def enlarged(self) -> WorkloadSpec:
        raise Unsupported("chunks and rows of Reformer decide its operators: no larger twin has those of the small one")

    def shrunk_tokens(self) -> int:
        # Chunks are a thirty-second as long. As many of them: one; two, of which the second is filled up; two
        if self.tokens <= int(self.entry.sizes["local_attn_chunk_length"]):
            return min(self.tokens, int(self.entry.twin["local_attn_chunk_length"]))
        return 6 if self.tokens < self.entry.longest else 8
