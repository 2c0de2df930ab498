"""What every backend provides: a callable made from a workload, and the way to its inputs and outputs."""

import contextlib
from abc import ABC, abstractmethod
from typing import Any, ContextManager, Dict, Optional, Tuple

from runners.contract import WorkloadSpec
from runners.contract.catalogue import BACKENDS, resolve_options
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Synchronize, Tolerance, Workload

CACHE_VARIABLE = "TAXMETER_CACHE"
"""Names the directory that trials share; see `runners.protocol.cache`."""

HEADERS = "inductor-headers"
"""An entry of the cache that grows: the compiler's precompiled headers."""


class Backend(ABC):
    """One way to execute a workload. A subclass overrides what differs from a plain call."""

    preload: Tuple[str, ...] = ()
    """Modules that every trial needs: the supervisor imports them once, before it forks."""

    has_artifact = False
    """Work is done ahead of time, in a process of its own, and kept in the cache."""

    capturable = False
    """On a GPU: a call launches kernels on torch's current stream, so that a CUDA graph can record it."""

    allocates_by_torch = True
    """On a GPU: what a call needs comes from torch's allocator, whose peaks tell its memory."""

    tolerance: Optional[Tolerance] = None
    """For a backend that gives up accuracy by design; None takes the limits of the trial's dtype."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.spec = workload.spec
        self.options = resolve_options(workload.spec.backend)

    def artifact_kind(self) -> str:
        """What the artifact is: backends that name the same kind share it."""
        return self.spec.backend.name

    def artifact_frameworks(self) -> Tuple[str, ...]:
        """Distributions whose versions decide the artifact, beside those of the workload."""
        return BACKENDS[self.spec.backend.name].frameworks

    def artifact_workload(self) -> WorkloadSpec:
        """The workload and shape that the artifact is made for; other shapes may share it."""
        return self.spec.workload

    def artifact_identity(self) -> Dict[str, Any]:
        """What decides the artifact beside workload, shape, dtype and seed."""
        return {}

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        """Writes the artifact into an empty directory and returns facts about it.

        Raises:
            Unsupported: the framework cannot make it of this workload; the message is its reason.
        """
        raise AssertionError("only a backend with has_artifact makes one")

    def host_threads(self) -> int:
        """Threads of the workload's own framework in the measured process."""
        return self.spec.threads

    def build(self) -> Optional[Any]:
        """The model that `load` needs; None if the artifact is enough."""
        return self.workload.build()

    @abstractmethod
    def load(self, model: Any, artifact: Optional[str]) -> Call:
        """Makes the model callable on native inputs, given by position.

        Raises:
            Unsupported: the framework cannot execute this workload; the message is its reason.
        """

    def execution(self) -> ContextManager[Any]:
        """Surrounds all calls, timed or not."""
        return contextlib.nullcontext()

    def synchronize(self) -> Optional[Synchronize]:
        """Waits for the device; None where a call returns only when its work is done."""
        return self.workload.synchronize()

    def dispatched(self, call: Call) -> Optional[Call]:
        """The same call, made to return when its work is queued on the device; None if it always waits for it."""
        return call

    def native(self, inputs: Inputs) -> Inputs:
        """Converts inputs, outside the timed region."""
        return inputs

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        """Converts the result of a call into the form of the workload's arithmetic, outside the timed region.

        The next call may overwrite what this one returned, so this is a copy where that can happen.
        """
        return tuple(result)

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        """Operations that the framework dispatches per call by name, counted in one call after timing; None if unknown.

        They are compared with those of the shrunk twin: only if both are equal has the twin the same structure.
        A backend that knows the number alone counts under a single name.
        """
        return None

    def facts(self) -> Dict[str, FactValue]:
        """What is to be recorded about the loaded backend, before its first call."""
        return {}

    def counted(self, call: Call, inputs: Inputs) -> Dict[str, FactValue]:
        """What else a call consists of, found after timing as `operations` is, by one process of a task for all."""
        return {}

    def examined(self) -> Dict[str, FactValue]:
        """What is to be recorded about the backend of each process after all calls."""
        return {}
