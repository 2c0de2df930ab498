"""What all recognisers of speech share: noise at 16 kHz, a configuration, and the twin for the dispatch floor.

All have the same seven filters, which make a frame of 400 samples and another of each 320 that follow.
"""

from dataclasses import replace
from typing import Any, Dict, Optional

from runners.contract import TWIN_GROWTH, TrialSpec, WorkloadSpec
from runners.contract.catalogue.speech import SPEECHES
from runners.contract.record import FactValue
from runners.workloads.base import Inputs
from runners.workloads.construction import (
    modelling,
    of_transformers,
    without_initialisers_of_transformers,
)
from runners.workloads.language.attention import choose, chosen
from runners.workloads.library_model import TWIN_BATCH, LibraryModel
from runners.workloads.tensors import PRELOAD

_FRAME_SAMPLES = 400
_HOP_SAMPLES = 320
# Layers and parts of the input are left out at random in training alone; some versions draw the number all the same
_NOTHING_RANDOM = {"apply_spec_augment": False, "mask_time_prob": 0.0}


class Speech(LibraryModel):
    """A model of transformers on sound."""

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec)
        self.row = SPEECHES[spec.workload.name]
        self.preload = (*PRELOAD, "transformers", modelling(self.row.architecture))

    @property
    def audio_samples(self) -> int:
        """Samples per example."""
        return int(self.options["audio_samples"])

    def settings(self) -> Dict[str, Any]:
        """Arguments of the configuration."""
        sizes = {"vocab_size": self.row.vocabulary, **self.row.sizes, **_NOTHING_RANDOM}
        return {**sizes, **(self.row.twin if self.is_shrunk else {})}

    def construct(self, attention: Optional[str]) -> Any:
        model_class = of_transformers(self.row.architecture, self.row.head)
        settings = self.settings()
        implementation = choose(model_class, attention)
        if implementation is not None:
            settings["attn_implementation"] = implementation
        config = of_transformers(self.row.architecture, "Config")(**settings)
        with without_initialisers_of_transformers():
            model = model_class(config)
        return self.adapted(model)

    def adapted(self, model: Any) -> Any:
        """The module that takes the inputs by position and returns a tuple of tensors; its `model` is the library's."""
        return with_sound(model)

    def example(self, generator: Any) -> Inputs:
        import torch

        # Recordings are brought to zero mean and unit variance before they are recognised
        return (torch.randn(1, self.audio_samples, generator=generator),)

    def facts(self, model: Any) -> Dict[str, FactValue]:
        return dict(
            super().facts(model),
            audio_frames=(self.audio_samples - _FRAME_SAMPLES) // _HOP_SAMPLES + 1,
            attn_implementation=chosen(type(model.model), model.model.config),
        )

    def shrunk(self) -> WorkloadSpec:
        small = super().shrunk()
        samples = min(self.audio_samples, _FRAME_SAMPLES + _HOP_SAMPLES)
        batch = min(self.spec.workload.batch, TWIN_BATCH) if self.row.views_of_one else TWIN_BATCH
        return replace(small, batch=batch, options={**small.options, "audio_samples": samples})

    def enlarged(self) -> WorkloadSpec:
        workload = self.spec.workload
        if workload.batch > 1:
            return super().enlarged()
        # Several examples are copied where a lone one is viewed: it becomes longer, by frames
        frames = (self.audio_samples - _FRAME_SAMPLES) // _HOP_SAMPLES + 1
        samples = _FRAME_SAMPLES + _HOP_SAMPLES * (TWIN_GROWTH * frames - 1)
        return replace(workload, options={**workload.options, "audio_samples": samples})


class SpeechT5Asr(Speech):
    """The encoder, and one step of the decoder from one token.

    Outputs are the logits of the next token and the encoder's last hidden state.
    """

    pad_token = 1

    def adapted(self, model: Any) -> Any:
        return with_sound_and_tokens(model)

    def example(self, generator: Any) -> Inputs:
        import torch

        # Any token but the one that pads, from which positions are not counted
        token = torch.randint(self.row.vocabulary - 1, (1, 1), generator=generator)
        return (*super().example(generator), token + (token >= self.pad_token))


def with_sound(model: Any) -> Any:
    """A module that takes sound and returns a tuple.

    The configuration could ask for tuples, but then a recent transformers fails where one model calls another.
    """
    import torch

    class WithSound(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, sound: Any) -> Any:
            return self.model(sound, return_dict=False)

    return WithSound()


def with_sound_and_tokens(model: Any) -> Any:
    """A module that takes sound and the decoder's tokens, and returns a tuple."""
    import torch

    class WithSoundAndTokens(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, sound: Any, tokens: Any) -> Any:
            return self.model(input_values=sound, decoder_input_ids=tokens, return_dict=False)

    return WithSoundAndTokens()
