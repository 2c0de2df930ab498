"""What is computed. The table is lazy: a name's module is imported only when a trial asks for it."""

import importlib
from typing import Type, cast

from runners.contract import TrialSpec
from runners.contract.catalogue import vision
from runners.workloads.base import Workload

WORKLOADS = {
    "bert-base": "runners.workloads.language.models:BertBase",
    "bert-large": "runners.workloads.language.models:BertLarge",
    "bert": "runners.workloads.language.models:Bert",
    "tiny-bert": "runners.workloads.language.models:TinyBert",
    "distilbert": "runners.workloads.language.models:DistilBert",
    "roberta-base": "runners.workloads.language.models:RobertaBase",
    "albert-base": "runners.workloads.language.models:AlbertBase",
    "deberta-base": "runners.workloads.language.models:DebertaBase",
    "funnel-small": "runners.workloads.language.models:FunnelSmall",
    "fnet-base": "runners.workloads.language.models:FNetBase",
    "nystromformer-512": "runners.workloads.language.models:Nystromformer512",
    "longformer-base": "runners.workloads.language.models:LongformerBase",
    "mobilebert": "runners.workloads.language.models:MobileBert",
    "reformer-enwik8": "runners.workloads.language.reformer:ReformerEnwik8",
    "squeezebert": "runners.workloads.language.models:SqueezeBert",
    "ibert-roberta-base": "runners.workloads.language.models:IBertRobertaBase",
    "gpt2": "runners.workloads.language.gpt2:Gpt2",
    "gpt2-generate": "runners.workloads.language.gpt2:Gpt2Generate",
    **dict.fromkeys(vision.TORCHVISION, "runners.workloads.vision:Torchvision"),
    **dict.fromkeys(vision.TIMM, "runners.workloads.vision:Timm"),
    "wav2vec2-base": "runners.workloads.speech_models:Wav2Vec2Base",
    "hubert-large": "runners.workloads.speech_models:HubertLarge",
    "wavlm-base": "runners.workloads.speech_models:WavLMBase",
    "speecht5-asr": "runners.workloads.speech_models:SpeechT5Asr",
    "op-feedforward": "runners.workloads.micro_ops:FeedForward",
    "op-conv2d": "runners.workloads.micro_ops:Conv2d",
    "op-mbconv2d": "runners.workloads.micro_ops:MbConv2d",
    "op-conv1d": "runners.workloads.micro_ops:Conv1d",
    "op-rnn": "runners.workloads.micro_ops:Rnn",
    "op-lstm": "runners.workloads.micro_ops:Lstm",
    "op-layernorm": "runners.workloads.micro_ops:LayerNorm",
    "op-mha": "runners.workloads.micro_ops:Mha",
    "op-gemm": "runners.workloads.roofs:Gemm",
    "op-triad": "runners.workloads.roofs:Triad",
    "synthetic-null": "runners.workloads.synthetic:Null",
    "synthetic-crash": "runners.workloads.synthetic:Crash",
    "synthetic-exit": "runners.workloads.synthetic:Exit",
    "synthetic-hang": "runners.workloads.synthetic:Hang",
    "synthetic-memory": "runners.workloads.synthetic:Memory",
    "synthetic-print": "runners.workloads.synthetic:Print",
    "synthetic-wrong": "runners.workloads.synthetic:Wrong",
    "synthetic-turns-wrong": "runners.workloads.synthetic:TurnsWrong",
    "synthetic-garbage": "runners.workloads.synthetic:Garbage",
    "synthetic-raise": "runners.workloads.synthetic:Raise",
    "synthetic-sleep": "runners.workloads.synthetic:Sleep",
    "synthetic-kill-supervisor": "runners.workloads.synthetic:KillSupervisor",
    "synthetic-unsupported": "runners.workloads.synthetic:UnsupportedHere",
}


def workload_class(name: str) -> Type[Workload]:
    """Imports the class behind a name of the table."""
    module, _, attribute = WORKLOADS[name].partition(":")
    return cast(Type[Workload], getattr(importlib.import_module(module), attribute))


def make_workload(spec: TrialSpec) -> Workload:
    """The workload of a trial; its model is not built yet."""
    return workload_class(spec.workload.name)(spec)
