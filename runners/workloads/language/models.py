"""The encoders that need more than their row in the catalogue. Reformer has a module of its own."""

from typing import Any, Dict

from runners.contract.record import FactValue
from runners.workloads.base import Unsupported
from runners.workloads.language.text import Text


class Bert(Text):
    """BERT in any depth and width."""

    @property
    def intermediate_size(self) -> int:
        """Width of the feed-forward layer; the option's 0 stands for four times the hidden size."""
        return int(self.options["intermediate_size"]) or 4 * int(self.options["hidden_size"])

    def settings(self) -> Dict[str, Any]:
        width, heads = int(self.options["hidden_size"]), int(self.options["heads"])
        if width % heads:
            raise Unsupported("hidden_size %d of workload bert is no multiple of its heads, %d" % (width, heads))
        settings = dict(super().settings(), num_hidden_layers=self.options["layers"], num_attention_heads=heads)
        if self.is_shrunk:
            return dict(settings, hidden_size=2 * heads, intermediate_size=8 * heads)
        return dict(settings, hidden_size=width, intermediate_size=self.intermediate_size)

    def facts(self, model: Any) -> Dict[str, FactValue]:
        return dict(super().facts(model), intermediate_size=self.intermediate_size)


class Longformer(Text):
    """The model pads its input to whole windows and cuts the output back: 128 tokens cost what 512 cost."""

    def shrunk_tokens(self) -> int:
        windows, rest = divmod(self.tokens, int(self.row.sizes["attention_window"]))
        small = int(self.row.twin["attention_window"])
        # As many windows; if the model fills up the last one, the twin's is half full
        return windows * small + (small // 2 if rest else 0)
