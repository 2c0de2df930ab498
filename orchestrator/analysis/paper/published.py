"""What the paper prints, as data: docs/paper/published.yaml, and nowhere else."""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from orchestrator.config import Document, SettingError, StrictModel, load_yaml

PUBLISHED: Final = Path("docs/paper/published.yaml")
"""In the root of the project."""

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(gt=0)]


class SizeRow(StrictModel):
    """A row of table 1: BERT of a width on an input."""

    hidden_size: Count
    """Dimension of self-attention."""
    intermediate_size: Count
    """Dimension of the fully connected layers."""
    batch: Count
    sequence_length: Count
    latency_s: Positive
    per_example_s: Positive


class SizeTable(StrictModel):
    """Table 1."""

    gpu: str
    backend: str
    dtype: str | None
    rows: tuple[SizeRow, ...] = Field(min_length=1)


class HardwareRow(StrictModel):
    """A row of table 2: a machine."""

    cpu: str
    gpu: str
    """A word that the name of the model has."""
    architecture: str
    cores: Count
    tensor_cores: Count | None
    clock_ghz: Positive
    memory_gb: Positive
    bandwidth_gb_per_s: Positive
    tflop_per_s: Positive


class HardwareTable(StrictModel):
    """Table 2, in the order of the generations."""

    rows: tuple[HardwareRow, ...] = Field(min_length=1)


class FrameworkRow(StrictModel):
    """A row of table 3: BERT-Base at batch 1 in a framework."""

    backend: str
    """As the axis `backend` has it."""
    compilation: str
    """When the graph is compiled."""
    serialisation: bool
    """Whether the kernels are recorded and replayed."""
    latency_s: Positive
    sm_active_share: Share
    """Of the GPU's multiprocessors, over time."""
    occupancy_share: Share
    """Of the warps that fit."""


class FrameworkTable(StrictModel):
    """Table 3."""

    gpu: str | None
    dtype: str | None
    rows: tuple[FrameworkRow, ...] = Field(min_length=1)


class Statement(StrictModel):
    """A number in the text."""

    id: str
    text: str
    value: Positive
    kind: Literal["less", "times"]
    """`less`: the value is a share that is saved; `times`: it is a factor."""
    claim: str
    """The id of the claim that decides it from a store."""
    figures: tuple[str, ...] = Field(min_length=1)
    """The figures that show it."""

    @property
    def factor(self) -> float:
        """How many times as much there is without what it tells of: 34 % less is 1.52 times."""
        return 1 / (1 - self.value) if self.kind == "less" else self.value

    @model_validator(mode="after")
    def _a_share_is_below_1(self) -> "Statement":
        if self.kind == "less" and self.value >= 1:
            raise ValueError(f"value is {self.value:g}, expected a share below 1: 34 % is 0.34")
        return self

    @property
    def full_text(self) -> str:
        return f"{self.text} (x{self.factor:.2f})" if self.kind == "less" else self.text


class Published(Document):
    """All that the paper prints."""

    version: Literal[1]
    source: str
    procedure: str
    """How its latencies were taken."""
    table_1: SizeTable
    table_2: HardwareTable
    table_3: FrameworkTable
    statements: tuple[Statement, ...]

    @model_validator(mode="after")
    def _each_statement_once(self) -> "Published":
        names = [statement.id for statement in self.statements]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise SettingError(f"statement {name} stands twice; give it another id", "statements", index, "id")
        return self

    def statements_of(self, figure: str) -> tuple[Statement, ...]:
        """The numbers in the text that a figure shows."""
        return tuple(statement for statement in self.statements if figure in statement.figures)


def load_published(path: Path) -> Published:
    """Reads the paper's numbers.

    Raises:
        ConfigurationError: the file is missing or wrong; names file, line and key.
    """
    return load_yaml(path, Published)
