"""The recognisers of speech, one class each: which checkpoint the paper took, and its sizes.

Sizes that are not written are the defaults of the configuration's class, which are the checkpoint's.
"""

from typing import Any, ClassVar

from runners.workloads.base import Inputs
from runners.workloads.language.text import modules
from runners.workloads.speech import Sizes, Speech, with_sound_and_tokens

_LETTERS = 32


class Wav2Vec2Base(Speech):
    """`facebook/wav2vec2-base-960h` with its head for letters; the output is their logits in each frame."""

    preload = modules("wav2vec2")
    config_name, model_name = "Wav2Vec2Config", "Wav2Vec2ForCTC"
    sizes: ClassVar[Sizes] = {
        "vocab_size": _LETTERS,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "feat_extract_norm": "group",
        "conv_bias": False,
        "do_stable_layer_norm": False,
        "layerdrop": 0.0,
    }
    # 12 heads and the 16 groups of the positional filter divide it
    twin: ClassVar[Sizes] = {"hidden_size": 48, "intermediate_size": 192, "conv_dim": (8,) * 7}


class HubertLarge(Speech):
    """`facebook/hubert-large-ls960-ft` with its head for letters; the output is their logits in each frame."""

    preload = modules("hubert")
    config_name, model_name = "HubertConfig", "HubertForCTC"
    sizes: ClassVar[Sizes] = {
        "vocab_size": _LETTERS,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "feat_extract_norm": "layer",
        "conv_bias": True,
        "do_stable_layer_norm": True,
        "layerdrop": 0.0,
    }
    twin: ClassVar[Sizes] = {"hidden_size": 32, "intermediate_size": 128, "conv_dim": (8,) * 7}


class WavLMBase(Wav2Vec2Base):
    """`microsoft/wavlm-base` with a head for letters; attention has a gated bias for relative positions."""

    preload = modules("wavlm")
    config_name, model_name = "WavLMConfig", "WavLMForCTC"
    views_of_one = True


class SpeechT5Asr(Speech):
    """`microsoft/speecht5_asr`: the encoder, and one step of the decoder from one token.

    Outputs are the logits of the next token and the encoder's last hidden state.
    """

    preload = modules("speecht5")
    config_name, model_name = "SpeechT5Config", "SpeechT5ForSpeechToText"
    sizes: ClassVar[Sizes] = {
        "vocab_size": 81,
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
    twin: ClassVar[Sizes] = {"hidden_size": 48, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192, "conv_dim": (8,) * 7}
    views_of_one = True
    pad_token = 1

    def adapted(self, model: Any) -> Any:
        return with_sound_and_tokens(model)

    def example(self, generator: Any) -> Inputs:
        import torch

        # Any token but the one that pads, from which positions are not counted
        token = torch.randint(self.sizes["vocab_size"] - 1, (1, 1), generator=generator)
        return (*super().example(generator), token + (token >= self.pad_token))
