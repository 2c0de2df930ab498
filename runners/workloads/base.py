"""What every workload provides: a model, its inputs, and the arithmetic that compares outputs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Optional, Tuple

from runners.contract import TWIN_GROWTH, TrialSpec, WorkloadSpec
from runners.contract.catalogue import resolve_workload_options
from runners.contract.record import FactValue

Inputs = Tuple[Any, ...]
Call = Callable[..., Any]
"""Takes native inputs as positional arguments."""
Synchronize = Callable[[], None]
"""Waits until the device has done all that it was given."""


class Unsupported(Exception):  # noqa: N818 - not an error of ours: the environment cannot serve the trial
    """The environment cannot serve this trial; the message says why."""


@dataclass(frozen=True)
class Errors:
    """How far one output is from its reference."""

    max_abs_error: float
    relative_l2: float
    cosine: float
    max_abs_reference: float


@dataclass(frozen=True)
class Tolerance:
    """How far outputs may be from the reference, beside a multiple of eager's own error."""

    relative_l2: float
    min_cosine: Optional[float] = None


class Arithmetic(ABC):
    """How the outputs of a family of workloads are stored and compared.

    Outputs are a tuple of arrays in the family's own form, one per output of the model.
    """

    @abstractmethod
    def form(self, outputs: Tuple[Any, ...]) -> str:
        """Shapes and dtypes as text."""

    @abstractmethod
    def first_rows(self, outputs: Tuple[Any, ...], count: int) -> Tuple[Any, ...]:
        """The outputs for the first `count` examples."""

    @abstractmethod
    def finite(self, outputs: Tuple[Any, ...]) -> bool:
        """Whether every number is finite."""

    @abstractmethod
    def same(self, left: Tuple[Any, ...], right: Tuple[Any, ...]) -> bool:
        """Whether both are equal, bit for bit."""

    @abstractmethod
    def errors(self, outputs: Tuple[Any, ...], reference: Tuple[Any, ...]) -> Tuple[Errors, ...]:
        """Compares finite outputs with a reference of the same shapes, output by output."""

    @abstractmethod
    def save(self, document: Dict[str, Any], path: str) -> None:
        """Writes a dictionary of plain values and outputs."""

    @abstractmethod
    def load(self, path: str) -> Dict[str, Any]:
        """Reads what `save` wrote."""


class Workload(ABC):
    """A model with the shape of its input, for one trial specification."""

    preload: Tuple[str, ...] = ()
    """Modules that every trial needs: the supervisor imports them once, before it forks."""

    arithmetic: Arithmetic

    rows_are_independent = False
    """An example gives the same output in every batch, and a batch's inputs are the first rows of a larger one's."""

    def __init__(self, spec: TrialSpec) -> None:
        self.spec = spec
        self.options = resolve_workload_options(spec.workload)

    @abstractmethod
    def set_threads(self, threads: int) -> None:
        """Sets the threads of the framework, its seed and its device, first thing in a trial's process.

        Raises:
            Unsupported: the device of the trial is not there.
        """

    @abstractmethod
    def build(self, attention: Optional[str] = None) -> Any:
        """The model in the trial's dtype on its device, with weights that depend on the seed alone.

        Raises:
            Unsupported: the model has no such attention implementation.
        """

    def reference_model(self) -> Any:
        """The model that `reference` is called with."""
        return self.build()

    @abstractmethod
    def inputs(self, index: int) -> Inputs:
        """The inputs number `index`, in the trial's dtype on its device; distinct for each index."""

    @abstractmethod
    def reference(self, index: int, model: Any, double: bool) -> Tuple[Any, ...]:
        """Eager outputs for an input, in the trial's dtype on its device or, if `double`, in float64 on the CPU.

        A model that was used with `double` serves no other purpose afterwards.
        """

    @abstractmethod
    def facts(self, model: Any) -> Dict[str, FactValue]:
        """Properties of the model, such as its number of parameters."""

    def cost(self, model: Any) -> Dict[str, FactValue]:
        """Arithmetic of one example: `flops_per_example` and `macs_per_example`, or why they are unknown."""
        return {}

    def numerics(self) -> Dict[str, FactValue]:
        """How the processor and the framework treat the trial's dtype: native or emulated, reduced precision or not."""
        return {}

    def synchronize(self) -> Optional[Synchronize]:
        """Waits for the device; None where a call returns only when its work is done."""
        return None

    def shrunk(self) -> WorkloadSpec:
        """The twin with the same structure and next to no arithmetic, one example at a time.

        Raises:
            Unsupported: there is none, and why.
        """
        raise Unsupported("workload %s has no twin of the same structure that is small" % self.spec.workload.name)

    def enlarged(self) -> WorkloadSpec:
        """Of a shrunk twin, the one with `TWIN_GROWTH` times the elements: by default with as many times the examples.

        Raises:
            Unsupported: there is none of the same structure, and why.
        """
        workload = self.spec.workload
        return replace(workload, batch=TWIN_GROWTH * workload.batch)
