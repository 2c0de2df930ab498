"""Models of sound, from transformers: one row each, which is all that a new one needs.

All have the same seven filters, which make a frame of 400 samples and another of each 320 that follow. Sizes that are
not written are the defaults of the configuration's class, which are the checkpoint's. Weights are random.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping

from runners.contract.catalogue.entries import SIZE, SPEECH, IntegerRange, OptionInfo, WorkloadInfo

# From the shortest sound of which the filters make one frame to 20 s; by default, as in the paper, 2 s
AUDIO_SAMPLES: OptionInfo = IntegerRange(400, 320_000, default=32_000)
"""Samples per example, at 16 kHz."""


@dataclass(frozen=True)
class SpeechModel:
    """One model of transformers."""

    architecture: str
    """`Hubert` stands for the class `HubertConfig` and the module `hubert`."""
    head: str
    """What ends the name of its class."""
    about: str
    """The checkpoint, and what is special."""
    parameters: int
    """As published, rounded."""
    vocabulary: int
    sizes: Mapping[str, Any]
    """In what the checkpoint's configuration differs from the defaults of its class."""
    twin: Mapping[str, Any] = field(default_factory=dict)
    """Widths of the shrunk twin. Depth, heads, kernels and groups stay."""
    views_of_one: bool = False
    """Its attention takes views of a lone example where it copies several: the twin of one example has one."""
    implementation: str = "speech:Speech"
    """Module and class in `runners.workloads`, for a model that needs code."""


_LETTERS = 32
_BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "feat_extract_norm": "group",
    "conv_bias": False,
    "do_stable_layer_norm": False,
    "layerdrop": 0.0,
}
_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "feat_extract_norm": "layer",
    "conv_bias": True,
    "do_stable_layer_norm": True,
    "layerdrop": 0.0,
}
_SPEECHT5 = {
    "hidden_size": 768,
    "encoder_layers": 12,
    "encoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_layers": 6,
    "decoder_attention_heads": 12,
    "decoder_ffn_dim": 3072,
    "feat_extract_norm": "group",
    "conv_bias": False,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "use_cache": False,
}
_FILTERS = {"conv_dim": (8,) * 7}
# 12 heads and the 16 groups of the positional filter divide it
_BASE_TWIN = {"hidden_size": 48, "intermediate_size": 192, **_FILTERS}

SPEECHES: Dict[str, SpeechModel] = {
    "speecht5-asr": SpeechModel(
        "SpeechT5",
        "ForSpeechToText",
        "`microsoft/speecht5_asr`: the encoder, and one step of the decoder",
        150_000_000,
        81,
        _SPEECHT5,
        twin={"hidden_size": 48, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192, **_FILTERS},
        views_of_one=True,
        implementation="speech:SpeechT5Asr",
    ),
    "hubert-large": SpeechModel(
        "Hubert",
        "ForCTC",
        "`facebook/hubert-large-ls960-ft` with its head for letters: logits in each frame",
        317_000_000,
        _LETTERS,
        _LARGE,
        twin={"hidden_size": 32, "intermediate_size": 128, **_FILTERS},
    ),
    "wav2vec2-base": SpeechModel(
        "Wav2Vec2",
        "ForCTC",
        "`facebook/wav2vec2-base-960h` with its head for letters: logits in each frame",
        94_000_000,
        _LETTERS,
        _BASE,
        twin=_BASE_TWIN,
    ),
    "wavlm-base": SpeechModel(
        "WavLM",
        "ForCTC",
        "`microsoft/wavlm-base` with a head for letters; a gated bias for relative positions",
        94_000_000,
        _LETTERS,
        _BASE,
        twin=_BASE_TWIN,
        views_of_one=True,
    ),
}

WORKLOADS: Dict[str, WorkloadInfo] = {
    name: WorkloadInfo(
        family=SPEECH,
        frameworks=("torch", "transformers"),
        about=model.about,
        options={"size": SIZE, "audio_samples": AUDIO_SAMPLES},
        parameters=model.parameters,
    )
    for name, model in SPEECHES.items()
}
