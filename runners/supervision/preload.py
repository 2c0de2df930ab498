"""What is imported once, before the first fork, and the proof that children can compute after it."""

import importlib
import sys
import time
from functools import partial
from typing import Dict, Iterable, List, Optional

from runners.backends import backend_class
from runners.contract import Status, Trial
from runners.contract.catalogue import refusal
from runners.contract.record import FactValue
from runners.protocol.answer import Answer, decode_answer
from runners.supervision.interrupts import Interrupts
from runners.supervision.process import run_child
from runners.system import cuda_driver, environment
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


def facts_of_child(interrupts: Interrupts, on_gpu: bool = False) -> Optional[Dict[str, FactValue]]:
    """What a forked child that has computed says of the environment; null if it cannot compute, which is printed.

    It runs torch with two threads, which hangs if the supervisor ever did, and on a GPU adds there, which fails if
    something has started the CUDA driver in the supervisor. Frameworks start it to answer questions (torch 2.11 does
    for the version of cuDNN), and so it is a child that asks them.

    Raises:
        Interrupted: the supervisor has to end.
    """
    status = cuda_driver.status_here() if on_gpu else None
    if status not in (None, cuda_driver.NOT_INITIALIZED):
        print("an import has started the CUDA driver: cuDeviceGetCount says %s" % cuda_driver.named(status), flush=True)
        return None
    ended = run_child(partial(_compute_and_observe, on_gpu), time.monotonic() + _CANARY_S, interrupts)
    if ended.code != 0:
        print(ended.log_tail, flush=True)
        return None
    return decode_answer(ended.data).facts


def _compute_and_observe(on_gpu: bool) -> Answer:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(2)
        torch.ones(1 << 18).add_(1).sum()
        if on_gpu and torch.cuda.is_available():  # else each trial says why not
            torch.ones(1 << 10, device="cuda").add_(1).sum().item()
    return Answer(Status.OK, facts=environment.observe())
