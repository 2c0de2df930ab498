"""`claims/*.yaml`: findings as queries with thresholds. docs/claims.md says how to write one."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from orchestrator.analysis.axes import AXES, axis
from orchestrator.analysis.claims.configurations import known_metric
from orchestrator.analysis.claims.intervals import Threshold
from orchestrator.analysis.conditions import Condition, Operator, parse_conditions
from orchestrator.config import Document, StrictModel, load_yaml
from orchestrator.errors import ConfigurationError


def _one_or_many(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _known(check: Callable[[Any], object]) -> AfterValidator:
    """What raises an error of ours raises one that names file, line and key."""

    def checked(value: Any) -> Any:
        try:
            check(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(checked)


Texts = Annotated[tuple[str, ...], BeforeValidator(_one_or_many), Field(min_length=1)]
Conditions = Annotated[Texts, _known(parse_conditions)]
AxisName = Annotated[str, _known(axis)]
AxisNames = Annotated[tuple[AxisName, ...], BeforeValidator(_one_or_many)]
MetricName = Annotated[str, _known(known_metric)]
AtLeast = Annotated[int, Field(ge=2)]


class Kind(Enum):
    """What the number of a statistic is."""

    RATIO = "ratio"
    LEVEL = "level"
    EXPONENT = "exponent"
    CORRELATION = "rank correlation"


class Statistic(StrictModel):
    """A number and what it must be."""

    kind: ClassVar[Kind]
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "Statistic":
        threshold = self.threshold
        least, most = threshold.ends
        if threshold == Threshold():
            allowed = " or ".join(name for name in ("above", "below", "within") if name in type(self).model_fields)
            raise ValueError(f"give a bound, {allowed}: there is none")
        if threshold.within is not None and (threshold.within <= 1 or threshold != Threshold(within=threshold.within)):
            raise ValueError("within is a factor above 1, and alone")
        if least >= most:
            raise ValueError(f"nothing is {threshold.text}")
        return self

    @property
    def threshold(self) -> Threshold:
        return Threshold(self.above, self.below, getattr(self, "within", None))


class Ratio(Statistic):
    """How many times better `of` is than `against`, everything else equal: above 1 is better."""

    kind: ClassVar[Kind] = Kind.RATIO
    of: Conditions
    against: Conditions
    metric: MetricName | None = None
    at: Conditions | None = None
    """With `than`: the ratio here over that there."""
    than: Conditions | None = None
    mean_over: AxisNames = ()
    """The geometric mean over the values of these axes is what counts."""
    within: float | None = None

    @model_validator(mode="after")
    def _at_with_than(self) -> "Ratio":
        if (self.at is None) != (self.than is None) or (self.at and self.mean_over):
            raise ValueError("at and than go together, and without mean_over; give both, or neither")
        return self


class Flat(Statistic):
    """A number that stays the same along an axis: each value against the first, in either direction."""

    kind: ClassVar[Kind] = Kind.RATIO
    along: AxisName
    metric: MetricName | None = None
    within: float | None = None
    at_least: AtLeast = 3
    """Values along the axis, for it to say anything."""


class Growth(Statistic):
    """The exponent with which a number grows along an axis: 1 is in proportion, 0 not at all."""

    kind: ClassVar[Kind] = Kind.EXPONENT
    along: AxisName
    metric: MetricName | None = None
    at_least: AtLeast = 3


class RankCorrelation(Statistic):
    """Spearman's rank correlation of two numbers over workloads; the configurations of one are one point."""

    kind: ClassVar[Kind] = Kind.CORRELATION
    x: MetricName
    y: MetricName
    at_least: AtLeast = 5


class Trend(Statistic):
    """Kendall's rank correlation of the transition batches and the peak throughputs of series over batches."""

    kind: ClassVar[Kind] = Kind.CORRELATION
    over: AxisNames
    """A point is a combination of their values; cases differ in all else."""
    at_least: Annotated[int, Field(ge=3)] = 4


class Transition(Statistic):
    """The transition batch; with `of` and `against`, that of one over that of the other."""

    of: Conditions | None = None
    against: Conditions | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> "Transition":
        if (self.of is None) != (self.against is None):
            raise ValueError("of and against go together; give both, or neither")
        return self


class Ordering(Statistic):
    """Values of an axis in the order of a number, the least first: each against the one before it."""

    kind: ClassVar[Kind] = Kind.RATIO
    along: AxisName
    order: Annotated[tuple[str, ...], Field(min_length=2)]
    metric: MetricName | None = None
    above: float | None = Field(default=1.0, ge=1)
    """Each is more than this many times the one before it."""


class Level(Statistic):
    """A number as it is."""

    kind: ClassVar[Kind] = Kind.LEVEL
    metric: MetricName


AnyStatistic: TypeAlias = Ratio | Flat | Growth | RankCorrelation | Trend | Transition | Ordering | Level
STATISTICS: Final = ("ratio", "flat", "growth", "rank_correlation", "trend", "transition", "ordering", "level")


class Claim(StrictModel):
    """One finding."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    text: str = Field(min_length=1)
    """What is claimed, in a sentence."""
    source: str = Field(min_length=1)
    """Who claims it, and where: paper with section, figure or table, or page of the documentation."""
    quote: str | None = Field(default=None, min_length=1)
    """What the source says, word for word."""
    paraphrase: str | None = Field(default=None, min_length=1)
    """What the source says, in other words."""
    published: float | tuple[float, ...] | None = None
    """The value that the source prints, as the number of the statistic; of an ordering one for each of its values."""
    measured_by: Texts
    """Sweeps that measure what is needed."""
    where: Conditions | None = None
    """The trials that it is about."""
    regime: Literal["framework-bound", "compute-bound"] | None = None
    """Only configurations that are proven to be in this regime."""
    holds_for: Literal["all", "any"] = "all"
    """Whether it must hold in every case, or one is enough."""
    ratio: Ratio | None = None
    flat: Flat | None = None
    growth: Growth | None = None
    rank_correlation: RankCorrelation | None = None
    trend: Trend | None = None
    transition: Transition | None = None
    ordering: Ordering | None = None
    level: Level | None = None

    @model_validator(mode="after")
    def _whole(self) -> "Claim":
        given = [name for name in STATISTICS if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"not {' and '.join(given)}" if given else "there is none"
            raise ValueError(f"claim {self.id}: give one statistic ({', '.join(STATISTICS)}): {found}")
        if (self.quote is None) == (self.paraphrase is None):
            raise ValueError(
                f"claim {self.id}: give what the source says, word for word as quote or else as paraphrase"
            )
        values = len(self.ordering.order) if self.ordering else 0
        if isinstance(self.published, tuple) != bool(values) and self.published is not None:
            raise ValueError(f"claim {self.id}: published is one number, and of an ordering one for each of its values")
        if isinstance(self.published, tuple) and len(self.published) != values:
            raise ValueError(f"claim {self.id}: published has {len(self.published)} values, the order {values}")
        if not self._names_workloads:
            raise ValueError(
                f"claim {self.id}: no workload is named, so that the answer would depend on what else is in the "
                "store; add where: workload=NAME,NAME"
            )
        return self

    @property
    def statistic(self) -> AnyStatistic:
        found: AnyStatistic = next(given for name in STATISTICS if (given := getattr(self, name)) is not None)
        return found

    @property
    def kind(self) -> Kind:
        if self.transition is not None:
            return Kind.LEVEL if self.transition.of is None else Kind.RATIO
        return self.statistic.kind

    @property
    def unit(self) -> str:
        """Of its number; `1` but for levels."""
        if self.kind is not Kind.LEVEL:
            return "1"
        return str(AXES["batch"].unit) if self.level is None else known_metric(self.level.metric).unit

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return parse_conditions(self.where or ())

    @property
    def _names_workloads(self) -> bool:
        sides = [getattr(self.statistic, name, None) for name in ("of", "against")]
        named = self.ordering is not None and self.ordering.along == "workload"
        return named or _is_workload_named(self.where) or all(map(_is_workload_named, sides))


class Claims(Document):
    """One file."""

    version: Literal[1]
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _not_empty(self) -> "Claims":
        # Not as a bound of the tuple: a claim that is wrong would be told as one too few.
        if not self.claims:
            raise ValueError("there is no claim; write one, or remove the file")
        return self


def load_claims(paths: Iterable[Path]) -> dict[str, Claim]:
    """Reads files of claims; directories stand for all files below them. By id, in the order of the files.

    Raises:
        ConfigurationError: a file is missing or wrong, or an id stands twice; names file, line and key.
    """
    found: dict[str, Claim] = {}
    for path in _files(paths):
        document = load_yaml(path, Claims)
        for number, claim in enumerate(document.claims):
            if claim.id in found:
                raise document.error(f"{claim.id} stands twice; give it another id", "claims", number, "id")
            found[claim.id] = claim
    return found


def _is_workload_named(texts: Sequence[str] | None) -> bool:
    conditions = parse_conditions(texts or ())
    return any(each.axis.name == "workload" and each.operator is Operator.EQUAL for each in conditions)


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            fix = "give another with --claims PATH, or run it in the project's directory"
            raise ConfigurationError(f"{path}: no such file or directory; {fix}")
        files += sorted(path.glob("**/*.yaml")) if path.is_dir() else [path]
    if not files:
        raise ConfigurationError(f"no claims in {', '.join(map(str, paths))}; give a file or directory with --claims")
    return files
