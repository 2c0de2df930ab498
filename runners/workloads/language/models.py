"""The encoders, one class each: which checkpoint the paper took, and its sizes. Reformer has a module of its own.

Outputs are the last hidden state and, where the class has a pooler, the pooled first token. Sizes that are not
written are the defaults of the configuration's class, which were those of the checkpoint.
Twins have two numbers per head: an axis of one is contiguous in more layouts, which changes what Longformer copies.
"""

from typing import Any, Dict

from runners.contract.record import FactValue
from runners.workloads.base import Unsupported
from runners.workloads.language.text import Entry, Text, modules

_TWIN_WIDTH = {"hidden_size": 24, "intermediate_size": 96}
_ROBERTA_BASE = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}


class BertBase(Text):
    """`bert-base-uncased`."""

    preload = modules("bert")
    entry = Entry("BertConfig", "BertModel", 30522, twin=_TWIN_WIDTH)


class BertLarge(BertBase):
    """`bert-large-uncased`."""

    entry = Entry(
        "BertConfig",
        "BertModel",
        30522,
        sizes={
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        twin={"hidden_size": 32, "intermediate_size": 128},
    )


class TinyBert(BertBase):
    """No checkpoint: two narrow layers, for fast tests and not for conclusions."""

    entry = Entry(
        "BertConfig",
        "BertModel",
        1024,
        sizes={"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
        twin={"hidden_size": 4, "intermediate_size": 16},
    )


class Bert(BertBase):
    """No checkpoint: BERT in any depth and width, by default those of `bert-base-uncased`."""

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


class DistilBert(Text):
    """`distilbert-base-uncased`: half of BERT-base's layers, no pooler."""

    preload = modules("distilbert")
    entry = Entry("DistilBertConfig", "DistilBertModel", 30522, twin={"dim": 24, "hidden_dim": 96})


class RobertaBase(Text):
    """`roberta-base`: BERT-base with another vocabulary; positions are counted from the tokens."""

    preload = modules("roberta")
    entry = Entry("RobertaConfig", "RobertaModel", 50265, sizes=_ROBERTA_BASE, twin=_TWIN_WIDTH, pad_token=1)


class AlbertBase(Text):
    """`albert-base-v2`: one layer, applied twelve times. The defaults of its class are those of the xxlarge model."""

    preload = modules("albert")
    entry = Entry(
        "AlbertConfig",
        "AlbertModel",
        30000,
        sizes={"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        twin={"embedding_size": 4, **_TWIN_WIDTH},
    )


class DebertaBase(Text):
    """`microsoft/deberta-base`: attention on content and relative position, no pooler."""

    preload = modules("deberta")
    entry = Entry(
        "DebertaConfig",
        "DebertaModel",
        50265,
        sizes={"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"},
        twin=_TWIN_WIDTH,
    )


class FunnelSmall(Text):
    """`funnel-transformer/small`: three blocks that halve the sequence, and a decoder that restores it; no pooler."""

    preload = modules("funnel")
    entry = Entry("FunnelConfig", "FunnelModel", 30522, twin={"d_model": 24, "d_head": 2, "d_inner": 96})


class FNetBase(Text):
    """`google/fnet-base`: Fourier transforms in place of attention; takes no mask."""

    preload = modules("fnet")
    entry = Entry("FNetConfig", "FNetModel", 32000, twin=_TWIN_WIDTH, pad_token=3)


class Nystromformer512(Text):
    """`uw-madison/nystromformer-512`; no pooler.

    The checkpoint has as many landmarks as positions in a segment, for which transformers computes exact attention;
    the convolution beside it stays.
    """

    preload = modules("nystromformer")
    entry = Entry("NystromformerConfig", "NystromformerModel", 30000, twin=_TWIN_WIDTH, longest=510, pad_token=1)


class LongformerBase(Text):
    """`allenai/longformer-base-4096`: attention in windows of 512 tokens.

    The model pads its input to whole windows and cuts the output back: 128 tokens cost what 512 cost.
    """

    preload = modules("longformer")
    entry = Entry(
        "LongformerConfig",
        "LongformerModel",
        50265,
        sizes={**_ROBERTA_BASE, "max_position_embeddings": 4098, "attention_window": 512},
        twin={"attention_window": 8, **_TWIN_WIDTH},
        longest=4096,
        pad_token=1,
    )

    def shrunk_tokens(self) -> int:
        windows, rest = divmod(self.tokens, int(self.entry.sizes["attention_window"]))
        small = int(self.entry.twin["attention_window"])
        # As many windows; if the model fills up the last one, the twin's is half full
        return windows * small + (small // 2 if rest else 0)


class MobileBert(Text):
    """`google/mobilebert-uncased`: 24 narrow layers with bottlenecks."""

    preload = modules("mobilebert")
    entry = Entry(
        "MobileBertConfig",
        "MobileBertModel",
        30522,
        twin={"embedding_size": 8, "hidden_size": 32, "intermediate_size": 32, "intra_bottleneck_size": 8},
    )


class SqueezeBert(Text):
    """`squeezebert/squeezebert-uncased`: grouped convolutions in place of linear layers."""

    preload = modules("squeezebert")
    entry = Entry(
        "SqueezeBertConfig",
        "SqueezeBertModel",
        30522,
        twin={"embedding_size": 24, **_TWIN_WIDTH},
        # A lone small convolution would take torch's own kernel, not oneDNN's as the trial does
        twin_rows=(2, 2),
    )


class IBertRobertaBase(Text):
    """`kssteven/ibert-roberta-base` in the float mode of the checkpoint: nothing is quantised."""

    preload = modules("ibert")
    entry = Entry(
        "IBertConfig",
        "IBertModel",
        50265,
        sizes={**_ROBERTA_BASE, "quant_mode": False},
        twin=_TWIN_WIDTH,
        pad_token=1,
    )
