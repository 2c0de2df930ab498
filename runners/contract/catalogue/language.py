"""Models of text, from transformers."""

from typing import Callable, Dict, Mapping, Optional, Union

from runners.contract.catalogue.entries import GENERATION, LANGUAGE, Choice, IntegerRange, OptionInfo, WorkloadInfo
from runners.contract.spec import OptionValue

MASK: OptionInfo = Choice(allowed=("none", "ones", "ptb"), default="none")
"""`none`: no attention mask; `ones`: one that hides nothing; `ptb`: lengths drawn from the Penn Treebank's
distribution, padded to `sequence_length`."""
NO_MASK: OptionInfo = Choice(allowed=("none",), default="none")
"""The model takes none."""
SIZE: OptionInfo = Choice(allowed=("full", "shrunk"), default="full")
"""`shrunk`: the same layers and operators with next to no arithmetic, for the dispatch floor."""

_SHAPE: Dict[str, OptionInfo] = {
    "layers": IntegerRange(1, 96, default=12),
    "hidden_size": IntegerRange(1, 16384, default=768),
    "heads": IntegerRange(1, 128, default=12),
    # 0: four times hidden_size, as in every BERT that was published
    "intermediate_size": IntegerRange(0, 65536, default=0),
}


def bert_parameters(options: Mapping[str, OptionValue]) -> int:
    """Of the workload `bert`, from its depth and widths."""
    width, layers = int(options["hidden_size"]), int(options["layers"])
    inner = int(options["intermediate_size"]) or 4 * width
    # tokens, positions, segments and a normalisation
    embeddings = (30522 + 512 + 2) * width + 2 * width
    # four projections, the feed-forward pair and two normalisations
    layer = 4 * (width * width + width) + 2 * inner * width + inner + width + 4 * width
    pooler = width * width + width
    return embeddings + layers * layer + pooler


def _text(
    parameters: Union[int, Callable[[Mapping[str, OptionValue]], int]],
    options: Optional[Dict[str, OptionInfo]] = None,
    length: int = 128,
    family: str = LANGUAGE,
) -> WorkloadInfo:
    return WorkloadInfo(
        family=family,
        frameworks=("torch", "transformers"),
        sequence_length=length,
        parameters=parameters,
        options={"mask": MASK, "size": SIZE, **(options or {})},
    )


WORKLOADS = {
    "bert-base": _text(110_000_000),
    "bert-large": _text(335_000_000),
    "bert": _text(bert_parameters, _SHAPE),
    "tiny-bert": _text(200_000, length=16),
    "distilbert": _text(66_000_000),
    "roberta-base": _text(125_000_000),
    "albert-base": _text(12_000_000),
    "deberta-base": _text(139_000_000),
    "funnel-small": _text(131_000_000),
    "fnet-base": _text(83_000_000, {"mask": NO_MASK}),
    "nystromformer-512": _text(110_000_000),
    "longformer-base": _text(149_000_000),
    "mobilebert": _text(25_000_000),
    "reformer-enwik8": _text(149_000_000),
    "squeezebert": _text(51_000_000),
    "ibert-roberta-base": _text(125_000_000),
    "gpt2": _text(124_000_000),
    # The prompt has `sequence_length` tokens; it is never padded
    "gpt2-generate": _text(
        124_000_000, {"mask": NO_MASK, "new_tokens": IntegerRange(2, 512, default=16)}, family=GENERATION
    ),
}
