"""What is imported once, before the first fork, and the proof that children can compute after it."""

import importlib
import sys
import time
from typing import Iterable, List

from runners.backends import backend_class
from runners.contract import Status, Trial
from runners.contract.catalogue import refusal
from runners.protocol.answer import Answer
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import run_child
from runners.workloads import make_workload

_CANARY_S = 60.0
"""Far beyond what a busy machine takes for it: it has to tell a child that hangs."""


def modules_of(trials: Iterable[Trial]) -> List[str]:
    """The modules that the trials need, each once, in order of first need."""
    modules: List[str] = []
    for trial in trials:
        if refusal(trial.spec) is not None:
            continue
        wanted = (
            *make_workload(trial.spec).preload,
            *backend_class(trial.spec.backend.name).preload,
        )
        modules.extend(name for name in wanted if name not in modules)
    return modules


def import_all(modules: Iterable[str]) -> None:
    """Imports what can be imported; a child that needs a missing module says so in its own record."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - in an unknown environment an import may raise anything
            print("cannot import %s: %s: %s" % (name, type(error).__name__, error), flush=True)
    if "torch" in sys.modules:
        # After one parallel region in the supervisor every child would hang at its first
        sys.modules["torch"].set_num_threads(1)


def children_can_compute(interrupts: Interrupts) -> bool:
    """Whether a forked child can run torch with two threads; it hangs if the supervisor ever did.

    Raises:
        Interrupted: the supervisor has to end.
    """
    if "torch" not in sys.modules:
        return True
    ended = run_child(_compute_with_two_threads, time.monotonic() + _CANARY_S, interrupts)
    if ended.code != 0:
        print(ended.log_tail, flush=True)
    return ended.code == 0


def _compute_with_two_threads() -> Answer:
    import torch

    torch.set_num_threads(2)
    torch.ones(1 << 18).add_(1).sum()
    return Answer(Status.OK)
