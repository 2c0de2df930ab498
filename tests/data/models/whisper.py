import torch
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder


def build(shrunk=False):
    sizes = {"d_model": 24, "encoder_ffn_dim": 96, "max_source_positions": 8} if shrunk else {}
    config = WhisperConfig(**sizes)  # by default whisper-tiny: 80 mel bins, 30 s
    frames = 2 * config.max_source_positions
    return WhisperEncoder(config), lambda generator: torch.randn(1, 80, frames, generator=generator)
