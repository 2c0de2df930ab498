"""Reformer, whose chunks decide which lengths can be measured."""

from typing import Any, Optional, Tuple

from runners.contract import WorkloadSpec
from runners.workloads.base import Unsupported
from runners.workloads.language.text import Text


class Reformer(Text):
    """Chunks decide which lengths can be measured.

    Outside training the model cuts its axial table of positions, 128 x 512 in the checkpoint, to what a sequence
    needs: the table stays as it is, for any length. Chunks set the limit. Up to 128 tokens all attention is
    within one chunk; up to 256, to which the model then pads, local layers have two. Beyond that the layers of
    locality-sensitive hashing begin to hash, with rotations drawn at each call that differ between dtypes: there is no
    right answer to compare with, and such lengths are unsupported.
    """

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
        if self.tokens <= int(self.row.sizes["local_attn_chunk_length"]):
            return min(self.tokens, int(self.row.twin["local_attn_chunk_length"]))
        return 6 if self.tokens < self.row.longest else 8
