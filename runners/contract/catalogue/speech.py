"""Models of sound, from transformers."""

from typing import Dict

from runners.contract.catalogue.entries import SPEECH, Choice, IntegerRange, OptionInfo, WorkloadInfo

SIZE: OptionInfo = Choice(allowed=("full", "shrunk"), default="full")
"""`shrunk`: the same layers and operators with next to no arithmetic, for the dispatch floor."""
# From the shortest sound of which the filters make one frame to 20 s; by default, as in the paper, 2 s
AUDIO_SAMPLES: OptionInfo = IntegerRange(400, 320_000, default=32_000)
"""Samples per example, at 16 kHz."""

_OPTIONS = {"size": SIZE, "audio_samples": AUDIO_SAMPLES}
_PARAMETERS = {
    "speecht5-asr": 150_000_000,
    "hubert-large": 317_000_000,
    "wav2vec2-base": 94_000_000,
    "wavlm-base": 94_000_000,
}

WORKLOADS: Dict[str, WorkloadInfo] = {
    name: WorkloadInfo(family=SPEECH, frameworks=("torch", "transformers"), options=_OPTIONS, parameters=parameters)
    for name, parameters in _PARAMETERS.items()
}
