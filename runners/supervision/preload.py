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
from runners.system import cuda_driver
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


def children_can_compute(interrupts: Interrupts, on_gpu: bool = False) -> bool:
    """Whether a forked child can run torch with two threads; it hangs if the supervisor ever did.

    On a GPU it has to add there, too, which fails if an import has started the CUDA driver in the supervisor.

    Raises:
        Interrupted: the supervisor has to end.
    """
    if "torch" not in sys.modules:
        return True
    status = cuda_driver.status_here() if on_gpu else None
    if status not in (None, cuda_driver.NOT_INITIALIZED):
        print("an import has started the CUDA driver: cuDeviceGetCount says %s" % cuda_driver.named(status), flush=True)
        return False
    ended = run_child(
        _compute_everywhere if on_gpu else _compute_with_two_threads, time.monotonic() + _CANARY_S, interrupts
    )
    if ended.code != 0:
        print(ended.log_tail, flush=True)
    return ended.code == 0


def _compute_with_two_threads() -> Answer:
    import torch

    torch.set_num_threads(2)
    torch.ones(1 << 18).add_(1).sum()
    return Answer(Status.OK)


def _compute_everywhere() -> Answer:
    import torch

    answer = _compute_with_two_threads()
    if torch.cuda.is_available():  # else each trial says why not
        torch.ones(1 << 10, device="cuda").add_(1).sum().item()
    return answer
