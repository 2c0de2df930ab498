"""`claims/*.yaml`: findings as queries with thresholds. docs/claims.md says how to write one."""

from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from orchestrator.analysis.axes import axis
from orchestrator.analysis.claiming.figures import Threshold
from orchestrator.analysis.claiming.quantities import SERIES_QUANTITIES, quantity
from orchestrator.analysis.conditions import parse_conditions
from orchestrator.config import Document, StrictModel, load_yaml
from orchestrator.errors import ConfigurationError, did_you_mean


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


def _series_quantity(name: str) -> None:
    if name not in SERIES_QUANTITIES:
        raise ConfigurationError(f"{name} is no number of a series; {did_you_mean(name, SERIES_QUANTITIES)}")


Texts = Annotated[tuple[str, ...], BeforeValidator(_one_or_many), Field(min_length=1)]
Conditions = Annotated[Texts, _known(parse_conditions)]
AxisName = Annotated[str, _known(axis)]
AxisNames = Annotated[tuple[AxisName, ...], BeforeValidator(_one_or_many)]
QuantityName = Annotated[str, _known(quantity)]
SeriesName = Annotated[str, _known(_series_quantity)]
AtLeast = Annotated[int, Field(ge=2)]


class Kind(Enum):
    """What the number of a statistic is."""

    RATIO = "ratio"
    LEVEL = "level"
    EXPONENT = "exponent"
    RANK_CORRELATION = "rank correlation"


class Bounded(StrictModel):
    """A statistic with what it must be."""

    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> "Bounded":
        bounds = [name for name in ("above", "below", "within") if getattr(self, name, None) is not None]
        if len(bounds) != 1:
            allowed = " or ".join(name for name in ("above", "below", "within") if name in type(self).model_fields)
            given = f"not {' and '.join(bounds)}" if bounds else "there is none"
            raise ValueError(f"give one bound, {allowed}: {given}")
        within = getattr(self, "within", None)
        if within is not None and within <= 1:
            raise ValueError(f"within is a factor above 1, not {within:g}")
        return self

    @property
    def threshold(self) -> Threshold:
        """What it must be."""
        return Threshold(self.above, self.below, getattr(self, "within", None))


class Ratio(Bounded):
    """How many times better `of` is than `against`, everything else equal: above 1 is better."""

    kind: ClassVar[Kind] = Kind.RATIO
    of: Conditions
    against: Conditions
    metric: QuantityName | None = None
    mean_over: AxisNames = ()
    """The geometric mean over the values of these axes is what counts."""
    within: float | None = None


class Flat(StrictModel):
    """A number that stays the same along an axis: each value against the first, in either direction."""

    kind: ClassVar[Kind] = Kind.RATIO
    along: AxisName
    metric: QuantityName | None = None
    within: Annotated[float, Field(gt=1)]
    at_least: AtLeast = 3
    """Values along the axis, for it to say anything."""

    @property
    def threshold(self) -> Threshold:
        """What each ratio must be."""
        return Threshold(within=self.within)


class Growth(Bounded):
    """The exponent with which a number grows along an axis: 1 is in proportion, 0 not at all."""

    kind: ClassVar[Kind] = Kind.EXPONENT
    along: AxisName
    metric: QuantityName | None = None
    at_least: AtLeast = 3


class RankCorrelation(Bounded):
    """Spearman's rank correlation of two numbers."""

    kind: ClassVar[Kind] = Kind.RANK_CORRELATION
    x: QuantityName
    y: QuantityName
    over: AxisNames
    """A point is a combination of their values; cases differ in all else."""
    at_least: AtLeast = 5


class Scaling(Bounded):
    """The exponent with which one number of a series over batches grows with another, from case to case."""

    kind: ClassVar[Kind] = Kind.EXPONENT
    of: SeriesName
    by: SeriesName
    over: AxisNames
    at_least: Annotated[int, Field(ge=3)] = 4


class Transition(Bounded):
    """The transition batch; with `of` and `against`, that of one over that of the other."""

    of: Conditions | None = None
    against: Conditions | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> "Transition":
        if (self.of is None) != (self.against is None):
            raise ValueError("of and against go together; give both, or neither")
        return self

    @property
    def kind(self) -> Kind:
        """Whether it is of one series or of two."""
        return Kind.LEVEL if self.of is None else Kind.RATIO


class Ordering(StrictModel):
    """Values of an axis in the order of a number, the least first: each against the next."""

    kind: ClassVar[Kind] = Kind.RATIO
    along: AxisName
    order: Annotated[tuple[str, ...], Field(min_length=2)]
    metric: QuantityName | None = None
    by: Annotated[float, Field(ge=1)] = 1.0
    """Each is more than this many times the one before it."""

    @property
    def threshold(self) -> Threshold:
        """What each value over the one before it must be."""
        return Threshold(above=self.by)


class Level(Bounded):
    """A number as it is."""

    kind: ClassVar[Kind] = Kind.LEVEL
    metric: QuantityName


Statistic = Ratio | Flat | Growth | RankCorrelation | Scaling | Transition | Ordering | Level
STATISTICS: Final = ("ratio", "flat", "growth", "rank_correlation", "scaling", "transition", "ordering", "level")


class Claim(StrictModel):
    """One finding."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    text: str = Field(min_length=1)
    """What is claimed, in a sentence."""
    source: str = Field(min_length=1)
    """Who claims it, and where: paper with section, figure or table, or page of the documentation."""
    published: str | None = None
    """The number that the source prints."""
    measured_by: Texts
    """Sweeps that measure what is needed."""
    where: Annotated[Conditions | None, Field()] = None
    """The trials that it is about."""
    regime: Literal["framework-bound", "compute-bound"] | None = None
    """Only configurations that are proven to be in this regime."""
    holds_for: Literal["all", "any"] = "all"
    """Whether it must hold in every case, or one is enough."""
    ratio: Ratio | None = None
    flat: Flat | None = None
    growth: Growth | None = None
    rank_correlation: RankCorrelation | None = None
    scaling: Scaling | None = None
    transition: Transition | None = None
    ordering: Ordering | None = None
    level: Level | None = None

    @model_validator(mode="after")
    def _one_statistic(self) -> "Claim":
        given = [name for name in STATISTICS if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"not {' and '.join(given)}" if given else "there is none"
            raise ValueError(f"claim {self.id}: give one statistic ({', '.join(STATISTICS)}): {found}")
        return self

    @property
    def statistic(self) -> Statistic:
        """The one that it has."""
        found: Statistic = next(one for name in STATISTICS if (one := getattr(self, name)) is not None)
        return found

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions on its trials."""
        return self.where or ()


class Claims(Document):
    """One file."""

    version: int = Field(ge=1, le=1)
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


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(path.glob("**/*.yaml"))
        elif path.exists():
            files.append(path)
        else:
            fix = "give another with --claims PATH, or run it in the project's directory"
            raise ConfigurationError(f"{path}: no such file or directory; {fix}")
    if not files:
        raise ConfigurationError(f"no claims in {', '.join(map(str, paths))}; give a file or directory with --claims")
    return files
