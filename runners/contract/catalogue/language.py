"""Models of text, from transformers: one row each, which is all that a new one needs.

A row says what transformers calls the model, and in what the checkpoint's configuration differs from the defaults of
its class. Weights are random. Outputs are the last hidden state and, where the class has
a pooler, the pooled first token.
"""

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

from runners.contract.catalogue.entries import (
    GENERATION,
    LANGUAGE,
    SIZE,
    Choice,
    IntegerRange,
    OptionInfo,
    WorkloadInfo,
)
from runners.contract.spec import OptionValue, WorkloadSpec

MASK: OptionInfo = Choice(allowed=("none", "ones", "ptb"), default="none")
"""`none`: no attention mask; `ones`: one that hides nothing; `ptb`: lengths drawn from the Penn Treebank's
distribution, padded to `sequence_length`."""
NO_MASK: OptionInfo = Choice(allowed=("none",), default="none")
"""The model takes none."""
NEW_TOKENS = "new_tokens"

Options = Mapping[str, OptionValue]


@dataclass(frozen=True)
class TextModel:
    """One model of transformers."""

    architecture: str
    """`Bert` stands for the classes `BertConfig` and `BertModel`, and for the module `bert`."""
    about: str
    """The checkpoint, and what is special."""
    parameters: Union[int, Callable[[Options], int]]
    """As published, rounded, or computed from the options."""
    vocabulary: int
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """In what the checkpoint's configuration differs from the defaults of its class."""
    twin: Mapping[str, Any] = field(default_factory=dict)
    """Widths of the shrunk twin. Depth, heads and all else that decides the operators stay. There are two numbers per
    head: an axis of one is contiguous in more layouts, which changes what some models copy."""
    twin_rows: Tuple[int, int] = (1, 1)
    """Fewest and most rows of the twin, which has those of the trial in between: where operators depend on them."""
    longest: int = 512
    """Tokens for which the model has positions."""
    pad_token: int = 0
    head: str = "Model"
    """What ends the name of its class."""
    length: int = 128
    """Tokens, where a sweep says nothing."""
    options: Mapping[str, OptionInfo] = field(default_factory=dict)
    """Beside `mask` and `size`, or in place of them."""
    family: str = LANGUAGE
    implementation: str = "text:Text"
    """Module and class in `runners.workloads.language`, for a model that needs code."""


_SHAPE: Dict[str, OptionInfo] = {
    "layers": IntegerRange(1, 96, default=12),
    "hidden_size": IntegerRange(1, 16384, default=768),
    "heads": IntegerRange(1, 128, default=12),
    # 0: four times hidden_size, as in every BERT that was published
    "intermediate_size": IntegerRange(0, 65536, default=0),
}
_NARROW = {"hidden_size": 24, "intermediate_size": 96}
_ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
_ALBERT = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_DEBERTA = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"}
_MOBILE_TWIN = {"embedding_size": 8, "hidden_size": 32, "intermediate_size": 32, "intra_bottleneck_size": 8}
_REFORMER = {
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
}
_REFORMER_TWIN = {
    "hidden_size": 16,
    "attention_head_size": 2,
    "feed_forward_size": 64,
    "axial_pos_embds_dim": [4, 12],
    "local_attn_chunk_length": 4,
    "lsh_attn_chunk_length": 8,
}
# The model within reads the outputs of its parts by name; its adapter asks for a tuple
_GPT2 = {"return_dict": True}
_GPT2_TWIN = {"n_embd": 24, "bos_token_id": 0, "eos_token_id": 0}


def bert_parameters(options: Options) -> int:
    """Of the workload `bert`, from its depth and widths."""
    width, layers = int(options["hidden_size"]), int(options["layers"])
    inner = int(options["intermediate_size"]) or 4 * width
    # tokens, positions, segments and a normalisation
    embeddings = (30522 + 512 + 2) * width + 2 * width
    # four projections, the feed-forward pair and two normalisations
    layer = 4 * (width * width + width) + 2 * inner * width + inner + width + 4 * width
    pooler = width * width + width
    return embeddings + layers * layer + pooler


TEXTS: Dict[str, TextModel] = {
    "bert-base": TextModel("Bert", "`bert-base-uncased`", 110_000_000, 30522, twin=_NARROW),
    "bert-large": TextModel(
        "Bert",
        "`bert-large-uncased`",
        335_000_000,
        30522,
        sizes=_LARGE,
        twin={"hidden_size": 32, "intermediate_size": 128},
    ),
    "bert": TextModel(
        "Bert",
        "no checkpoint: BERT in any depth and width, by default those of `bert-base-uncased`",
        bert_parameters,
        30522,
        options=_SHAPE,
        implementation="models:Bert",
    ),
    "tiny-bert": TextModel(
        "Bert",
        "no checkpoint: two narrow layers, for fast tests and not for conclusions",
        200_000,
        1024,
        sizes=_TINY,
        twin={"hidden_size": 4, "intermediate_size": 16},
        length=16,
    ),
    "distilbert": TextModel(
        "DistilBert",
        "`distilbert-base-uncased`: half of BERT-base's layers, no pooler",
        66_000_000,
        30522,
        twin={"dim": 24, "hidden_dim": 96},
    ),
    "roberta-base": TextModel(
        "Roberta",
        "`roberta-base`: another vocabulary; positions are counted from the tokens",
        125_000_000,
        50265,
        sizes=_ROBERTA,
        twin=_NARROW,
        pad_token=1,
    ),
    # The defaults of its class are those of the xxlarge model
    "albert-base": TextModel(
        "Albert",
        "`albert-base-v2`: one layer, applied twelve times",
        12_000_000,
        30000,
        sizes=_ALBERT,
        twin={"embedding_size": 4, **_NARROW},
    ),
    "deberta-base": TextModel(
        "Deberta",
        "`microsoft/deberta-base`: attention on content and relative position, no pooler",
        139_000_000,
        50265,
        sizes=_DEBERTA,
        twin=_NARROW,
    ),
    "funnel-small": TextModel(
        "Funnel",
        "`funnel-transformer/small`: three blocks that halve the sequence, and a decoder that restores it",
        131_000_000,
        30522,
        twin={"d_model": 24, "d_head": 2, "d_inner": 96},
    ),
    "fnet-base": TextModel(
        "FNet",
        "`google/fnet-base`: Fourier transforms in place of attention; takes no mask",
        83_000_000,
        32000,
        twin=_NARROW,
        pad_token=3,
        options={"mask": NO_MASK},
    ),
    # With as many landmarks as positions in a segment transformers computes exact attention; the convolution stays
    "nystromformer-512": TextModel(
        "Nystromformer",
        "`uw-madison/nystromformer-512`; no pooler",
        110_000_000,
        30000,
        twin=_NARROW,
        longest=510,
        pad_token=1,
    ),
    "longformer-base": TextModel(
        "Longformer",
        "`allenai/longformer-base-4096`: attention in windows of 512 tokens",
        149_000_000,
        50265,
        sizes={**_ROBERTA, "max_position_embeddings": 4098, "attention_window": 512},
        twin={"attention_window": 8, **_NARROW},
        longest=4096,
        pad_token=1,
        implementation="models:Longformer",
    ),
    "mobilebert": TextModel(
        "MobileBert",
        "`google/mobilebert-uncased`: 24 narrow layers with bottlenecks",
        25_000_000,
        30522,
        twin=_MOBILE_TWIN,
    ),
    # The model looks its positions up row by row
    "reformer-enwik8": TextModel(
        "Reformer",
        "`google/reformer-enwik8`: on bytes, causal, with reversible layers and axial positions",
        149_000_000,
        258,
        sizes=_REFORMER,
        twin=_REFORMER_TWIN,
        twin_rows=(1, 1 << 20),
        longest=256,
        implementation="reformer:Reformer",
    ),
    # A lone small convolution would take torch's own kernel, not oneDNN's as the trial does
    "squeezebert": TextModel(
        "SqueezeBert",
        "`squeezebert/squeezebert-uncased`: grouped convolutions in place of linear layers",
        51_000_000,
        30522,
        twin={"embedding_size": 24, **_NARROW},
        twin_rows=(2, 2),
    ),
    "ibert-roberta-base": TextModel(
        "IBert",
        "`kssteven/ibert-roberta-base` in the float mode of the checkpoint: nothing is quantised",
        125_000_000,
        50265,
        sizes={**_ROBERTA, "quant_mode": False},
        twin=_NARROW,
        pad_token=1,
    ),
    "gpt2": TextModel(
        "GPT2",
        "`gpt2` with its language-model head; the output is the logits of all positions",
        124_000_000,
        50257,
        sizes=_GPT2,
        twin=_GPT2_TWIN,
        longest=1024,
        head="LMHeadModel",
        implementation="gpt2:Gpt2",
    ),
    # The prompt has `sequence_length` tokens; it is never padded
    "gpt2-generate": TextModel(
        "GPT2",
        "`gpt2`, greedy: a pass over the prompt, then one token after the other with a key/value cache",
        124_000_000,
        50257,
        sizes=_GPT2,
        twin=_GPT2_TWIN,
        longest=1024,
        head="LMHeadModel",
        options={"mask": NO_MASK, NEW_TOKENS: IntegerRange(2, 512, default=16)},
        family=GENERATION,
        implementation="gpt2:Gpt2Generate",
    ),
}


def problem(spec: WorkloadSpec) -> Optional[str]:
    """Why the model takes no text of this length, in one line; None if it does."""
    model, tokens = TEXTS[spec.name], spec.sequence_length
    assert tokens is not None
    more = model.options.get(NEW_TOKENS)
    new = 0 if more is None else int(spec.options.get(NEW_TOKENS, more.default))
    if tokens + new <= model.longest:
        return None
    asked = "for %d" % tokens if more is None else "for a prompt of %d and %d new ones" % (tokens, new)
    return "workload %s has positions for %d tokens, not %s" % (spec.name, model.longest, asked)


WORKLOADS: Dict[str, WorkloadInfo] = {
    name: WorkloadInfo(
        family=model.family,
        frameworks=("torch", "transformers"),
        about=model.about,
        sequence_length=model.length,
        parameters=model.parameters,
        options={"mask": MASK, "size": SIZE, **model.options},
        problem=problem,
    )
    for name, model in TEXTS.items()
}
