"""Models of text, from transformers."""

from typing import Dict, Optional

from runners.contract.catalogue.entries import GENERATION, LANGUAGE, Choice, IntegerRange, OptionInfo, WorkloadInfo

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


def _text(options: Optional[Dict[str, OptionInfo]] = None, length: int = 128, family: str = LANGUAGE) -> WorkloadInfo:
    return WorkloadInfo(
        family=family,
        frameworks=("torch", "transformers"),
        sequence_length=length,
        options={"mask": MASK, "size": SIZE, **(options or {})},
    )


WORKLOADS = {
    "bert-base": _text(),
    "bert-large": _text(),
    "bert": _text(_SHAPE),
    "tiny-bert": _text(length=16),
    "distilbert": _text(),
    "roberta-base": _text(),
    "albert-base": _text(),
    "deberta-base": _text(),
    "funnel-small": _text(),
    "fnet-base": _text({"mask": NO_MASK}),
    "nystromformer-512": _text(),
    "longformer-base": _text(),
    "mobilebert": _text(),
    "reformer-enwik8": _text(),
    "squeezebert": _text(),
    "ibert-roberta-base": _text(),
    "gpt2": _text(),
    # The prompt has `sequence_length` tokens; it is never padded
    "gpt2-generate": _text({"mask": NO_MASK, "new_tokens": IntegerRange(2, 512, default=16)}, family=GENERATION),
}
