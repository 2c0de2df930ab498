"""What is computed. The table is lazy: a name's module is imported only when a trial asks for it."""

import importlib
from typing import Type, cast

from runners.contract import TrialSpec
from runners.contract.catalogue import language, speech, vision
from runners.workloads.base import Workload

WORKLOADS = {
    **{name: "runners.workloads.language." + model.implementation for name, model in language.TEXTS.items()},
    **dict.fromkeys(vision.IMAGES, "runners.workloads.vision:ImageClassifier"),
    **{name: "runners.workloads." + model.implementation for name, model in speech.SPEECHES.items()},
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

OWN = "runners.workloads.own_model:OwnModel"
"""Of the models that come with their own file."""


def make_workload(spec: TrialSpec) -> Workload:
    """The workload of a trial; its model is not built yet."""
    return _imported(WORKLOADS[spec.workload.name] if spec.workload.source is None else OWN)(spec)


def _imported(place: str) -> Type[Workload]:
    module, _, attribute = place.partition(":")
    return cast(Type[Workload], getattr(importlib.import_module(module), attribute))
