"""What may be pooled and compared: the user's policy, and the one refusal of everything else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.analysis.axes import AXES, Axis, Group, Key, Row, Value, axes, key_text, sorting
from orchestrator.analysis.metrics import Metric
from orchestrator.analysis.verdict import MARGIN
from orchestrator.errors import ConfigurationError


class Pool(Enum):
    """What trials of one cell may differ in, if the user says so. By default in none of it."""

    ENVIRONMENT = "environment"
    METHOD = "method"
    ISOLATION = "isolation"
    PROTOCOL = "protocol"
    SEED = "seed"
    SYSTEM = "system"
    """Settings, kernel and driver of equal hardware."""
    HARDWARE = "hw"


POOLED_AXES: Final[Mapping[Pool, tuple[str, ...]]] = {
    Pool.ENVIRONMENT: ("environment", "environment_id"),
    Pool.METHOD: ("method",),
    Pool.ISOLATION: ("isolation",),
    Pool.PROTOCOL: ("protocol",),
    Pool.SEED: ("seed",),
    Pool.SYSTEM: ("system", "driver"),
    Pool.HARDWARE: ("hw", "system", "driver", "gpu", "cpu"),
}
"""The axes on which trials of a cell may then differ."""
_GUARDS: Final = (
    *(where for where in AXES.values() if where.group in (Group.WORK, Group.BACKEND)),
    *axes(("environment", "environment_id", "isolation", "method", "protocol", "gpu", "cpu", "hw", "driver", "system")),
)
"""A cell has one value of each, unless it is pooled or a coarser one differs anyway."""
_POOLABLE_AS: Final = {name: pool.value for pool, names in reversed(list(POOLED_AXES.items())) for name in names}
NEVER_COMPARED: Final = ("isolation", "method")
"""Unless they are axes of the table, or pooled: the numbers of the two sides mean different things."""
_VALUES_SHOWN: Final = 6
_TEXT_SHOWN: Final = 60


@dataclass(frozen=True)
class Policy:
    """How to compare, as the user decides it."""

    metric: Metric | None = None
    """By default the latency of lone calls on CPUs, and of back-to-back calls on GPUs."""
    pool: frozenset[Pool] = frozenset()
    latest: bool = False
    """Of each cell only the campaign that started last."""
    without_flagged: bool = False
    """Whether trials are left out whose guards found that something disturbed them."""
    margin: float = MARGIN
    """Within which two things are equivalent; 0.03 is 3 %."""

    @property
    def pooled_axes(self) -> frozenset[str]:
        """The axes on which trials of a cell may differ."""
        return frozenset(name for pool in self.pool for name in POOLED_AXES[pool])


def pools(names: tuple[str, ...], option: str | None = None) -> frozenset[Pool]:
    """What may be pooled, from the names that the user wrote.

    Raises:
        ConfigurationError: a name is unknown.
    """
    known = {pool.value: pool for pool in Pool}
    for name in names:
        if name not in known:
            raise ConfigurationError(f"{name} cannot be pooled; these can: {', '.join(known)}", key=option)
    return frozenset(known[name] for name in names)


def refuse_mixtures(cells: Mapping[Key, Sequence[Row]], key: Sequence[Axis], policy: Policy) -> None:
    """Measured trials of one cell must not differ in what makes them something else.

    Raises:
        ConfigurationError: they do; names the coarsest axis, values, a cell and the ways out.
    """
    free = policy.pooled_axes | {where.name for where in key}
    mixed: dict[Axis, list[Key]] = {}
    for name, rows in cells.items():
        for where in _GUARDS:
            if where.name not in free and len({where.read(row) for row in rows}) > 1:
                mixed.setdefault(where, []).append(name)
    if not mixed:
        return
    # The first is the coarsest: what differs in its environment differs in the identity of it, too.
    where, found = next(iter(mixed.items()))
    values = sorted({where.read(row) for row in cells[found[0]]}, key=lambda value: sorting((value,)))
    firsts = {axis.group: axis for axis in reversed(mixed)}
    also = [
        axis.name for axis in mixed if axis is not where and (axis.group is Group.WORK or axis is firsts[axis.group])
    ]
    place = key_text(found[0], key)
    raise ConfigurationError(
        f"trials that differ in {where.name} would be pooled: {', '.join(_brief(where, values))}"
        + (f", in {place}" if place else "")
        + (f" and {len(found) - 1} other cells" if len(found) > 1 else "")
        + f"; {_remedy(where, values)}"
        + (f" (they differ in {', '.join(also)}, too)" if also else "")
    )


def refuse_to_compare(
    sides: tuple[Sequence[Row], Sequence[Row]], text: str, metric: Metric, free: Iterable[str]
) -> None:
    """The two sides of a ratio must not mean different things.

    Raises:
        ConfigurationError: they do.
    """
    if len({metric.on(row["device"]).name for rows in sides for row in rows}) > 1:
        raise ConfigurationError(
            f"{text} and its baseline ran on a CPU and on a GPU, whose usual latencies are different things; "
            "say --metric latency_sync or --metric latency_pipelined",
            key="--metric",
        )
    for name in sorted({*NEVER_COMPARED} - set(free)):
        cell, baseline = ({AXES[name].read(row) for row in rows} for rows in sides)
        if cell != baseline:
            shown = [" and ".join(sorted(map(str, side))) for side in (cell, baseline)]
            raise ConfigurationError(
                f"{text} was measured with {name} {shown[0]}, its baseline with {shown[1]}, "
                f"which are not compared; choose with --where {name}={shown[1]}, or say --pool {name}"
            )


def _remedy(where: Axis, values: Sequence[Value]) -> str:
    ways = [f"make {where.name} one of the axes of the table"]
    if where.name != "protocol":
        ways.append(f"choose with --where {where.name}={where.brief(values[-1])}")
    if where.name in _POOLABLE_AS:
        ways += ["take --latest", f"say --pool {_POOLABLE_AS[where.name]}"]
    return f"{', '.join(ways[:-1])} or {ways[-1]}"


def _brief(where: Axis, values: Sequence[Value]) -> list[str]:
    texts = [where.brief(value) for value in values[:_VALUES_SHOWN]]
    shown = [text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}…" for text in texts]
    return [*shown, *([f"and {len(values) - _VALUES_SHOWN} more"] if len(values) > _VALUES_SHOWN else [])]
