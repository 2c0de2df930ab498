"""What one entry of the catalogue says."""

from dataclasses import dataclass, field
from typing import Callable, Dict, Mapping, Optional, Tuple, Union

from runners.contract.spec import OptionValue, WorkloadSpec

TORCH_DTYPES = ("float32", "float16", "bfloat16")
CPU = "cpu"
CUDA = "cuda"
DEVICES = (CPU, CUDA)
"""`cuda` is the first GPU that the process sees; which one that is, is for whoever starts it to decide."""

LANGUAGE = "language"
GENERATION = "generation"
VISION = "vision"
SPEECH = "speech"
MICRO_OPS = "micro_ops"
SYNTHETIC = "synthetic"
OWN = "own"
"""Models with a file of their own, outside of the catalogue."""
MODELS = (LANGUAGE, GENERATION, VISION, SPEECH, MICRO_OPS, OWN)
"""The families that are torch modules."""


@dataclass(frozen=True)
class Choice:
    """An option with a closed list of values."""

    allowed: Tuple[OptionValue, ...]
    default: OptionValue

    def accepts(self, value: OptionValue) -> bool:
        """Whether it may take this value; `1` is not `True`."""
        return any(value == allowed and type(value) is type(allowed) for allowed in self.allowed)

    def expected(self) -> str:
        """What it takes, for an error."""
        return "one of " + ", ".join(str(value) for value in self.allowed)


@dataclass(frozen=True)
class IntegerRange:
    """An option that takes any integer between two bounds, both included."""

    minimum: int
    maximum: int
    default: int

    def accepts(self, value: OptionValue) -> bool:
        """Whether it may take this value."""
        return type(value) is int and self.minimum <= value <= self.maximum

    def expected(self) -> str:
        """What it takes, for an error."""
        return "an integer from %d to %d" % (self.minimum, self.maximum)


OptionInfo = Union[Choice, IntegerRange]

SIZE: OptionInfo = Choice(allowed=("full", "shrunk"), default="full")
"""`shrunk`: the same layers and operators with next to no arithmetic, for the dispatch floor."""


@dataclass(frozen=True)
class BackendInfo:
    """What a backend accepts."""

    options: Dict[str, OptionInfo]
    frameworks: Tuple[str, ...]
    """Distributions that it needs, whose versions decide its results."""
    families: Tuple[str, ...]
    """Families of workloads that it can execute."""
    dtypes: Tuple[str, ...]
    devices: Tuple[str, ...] = (CPU,)
    compile_s: float = 0.0
    """Seconds in which it compiles a model that no cache holds, on one core: for estimates."""
    is_narrower: bool = False
    """By design it computes in fewer bits than the dtype of the trial has."""


@dataclass(frozen=True)
class WorkloadInfo:
    """What a workload is, and what it needs to be told."""

    family: str
    frameworks: Tuple[str, ...]
    sequence_length: Optional[int] = None
    """Default; null for a workload without a sequence."""
    image_size: Optional[int] = None
    """Default; null for a workload without an image."""
    dtypes: Tuple[str, ...] = TORCH_DTYPES
    options: Dict[str, OptionInfo] = field(default_factory=dict)
    devices: Tuple[str, ...] = DEVICES
    parameters: Union[int, Callable[[Mapping[str, OptionValue]], int], None] = None
    """Of the model as it was published, rounded, or computed from its options; null for what is no model. For
    planning: the exact number is a fact of each record."""
    problem: Optional[Callable[[WorkloadSpec], Optional[str]]] = None
    """Why a combination of allowed values makes no workload, in one line; null where every combination makes one."""
    about: str = ""
    """The model or operator, in a few words, for lists."""
