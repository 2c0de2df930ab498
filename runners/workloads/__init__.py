"""What is computed. The table is lazy: a name's module is imported only when a trial asks for it."""

import importlib
from typing import Type, cast

from runners.contract import TrialSpec
from runners.workloads.base import Workload

WORKLOADS = {
    "bert-base": "runners.workloads.language:BertBase",
    "distilbert": "runners.workloads.language:DistilBert",
    "tiny-bert": "runners.workloads.language:TinyBert",
    "resnet50": "runners.workloads.vision:ResNet50",
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
