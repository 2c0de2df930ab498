"""Plans as the rows of campaigns have them: what a campaign was to do, whatever today's files would plan."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Any, Final, Self

from orchestrator.boundary import plain_name, validated
from orchestrator.errors import ConfigurationError, one_line
from orchestrator.planning import Plan, work_digest
from orchestrator.store import Attempt, Row, campaign_plan
from runners.contract import Status, Trial, encode
from runners.contract.user_module import MODULE_OPTION, module_named

Visit = tuple[str, int, int]
"""Key, round and replicate of a trial: with its place and the campaign its identity."""

_MAX_PLAN_BYTES: Final = 2**30
"""Of a hundred million trials."""


@dataclass(frozen=True)
class _Trial:
    trial_id: str
    trial_key: str
    round: int
    replicate: int


@dataclass(frozen=True)
class _Trials:
    trial_id: list[str]
    trial_key: list[str]
    round: list[int]
    replicate: list[int]

    def __post_init__(self) -> None:
        if len({len(self.trial_id), len(self.trial_key), len(self.round), len(self.replicate)}) > 1:
            raise ValueError("its lists are of different lengths")


@dataclass(frozen=True)
class _Task:
    host: str
    trials: _Trials


@dataclass(frozen=True)
class _Skip:
    host: str
    trial: _Trial


@dataclass(frozen=True)
class _Workload:
    options: dict[str, Any] | None = None
    source: str | None = None


@dataclass(frozen=True)
class _Specification:
    workload: _Workload | None = None


@dataclass(frozen=True)
class _Document:
    """What is read of the document of `plan_document`, as far as a stranger may have written it."""

    tasks: list[_Task]
    skips: list[_Skip]
    unmatched: list[str]
    places: dict[str, str]
    common: _Specification
    specifications: dict[str, _Specification]

    def __post_init__(self) -> None:
        unknown = {key for task in self.tasks for key in task.trials.trial_key} - self.specifications.keys()
        if unknown:
            raise ValueError(f"there is no specification {one_line(min(unknown), 64)}, which a trial names")
        if any((self.common.workload or own.workload) is None for own in self.specifications.values()):
            raise ValueError("a specification has no workload")


_OF_VISIT: Final = tuple(field.name for field in fields(Trial) if field.name != "spec")
"""What the document says of a trial itself: all scalars."""

_ABSENT: Final = object()
"""Equal to no member."""


@dataclass(frozen=True)
class StoredPlan:
    """A plan as the row of its campaign has it."""

    sweep: str
    document: Mapping[str, Any]
    """Of `plan_document`."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self | None:
        """The plan of a row of `campaigns`; null if it has none, as that of an import.

        Raises:
            ForeignDataError: it cannot be read, or the identity of its campaign is no name of ours.
        """
        if row["plan"] is None:
            return None
        where = f"the plan of campaign {plain_name(row['campaign_id'], 'campaign')}"
        validated(_Document, row["plan"], where, limit_bytes=_MAX_PLAN_BYTES)
        return cls(row["sweep"], json.loads(row["plan"]))

    @property
    def places(self) -> frozenset[str]:
        """All that it has, those too at which nothing could run."""
        return frozenset(self.visits())

    @property
    def modules(self) -> dict[str, str]:
        """The texts of its models' own files, by `FILE.py:FUNCTION`; nothing of workloads of the catalogue."""
        workloads = [specification["workload"] or {} for specification in self._specifications().values()]
        own = [workload for workload in workloads if workload.get("source") is not None]
        return {
            ":".join(module_named(str((workload.get("options") or {}).get(MODULE_OPTION)))): workload["source"]
            for workload in own
        }

    def place(self, host: str) -> str:
        """What stands for a host in its trials' identity."""
        return str(self.document["places"].get(host, host))

    def hosts(self, place: str) -> frozenset[str]:
        """The hosts that it has at a place."""
        return frozenset(entry["host"] for part in ("tasks", "skips") for entry in self._at({place}, part))

    def visits(self) -> dict[str, frozenset[Visit]]:
        """What is to run, by place; nothing at those at which nothing can."""
        found: dict[str, set[Visit]] = {place: set() for place in self.document["places"].values()}
        for place, _, visit in self._trials():
            found.setdefault(place, set()).add(visit)
        return {place: frozenset(visits) for place, visits in found.items()}

    def disagreeing(self, other: Self) -> frozenset[str]:
        """The places that both have, and at which they would not do the same."""
        here, there = self.visits(), other.visits()
        return frozenset(place for place in here.keys() & there.keys() if here[place] != there[place])

    def shares_work(self, other: Self) -> bool:
        """Whether there is a place at which both do something."""
        here, there = self.visits(), other.visits()
        return any(here[place] and there[place] for place in here.keys() & there.keys())

    def waiting(self, attempts: Mapping[str, Attempt]) -> dict[str, int]:
        """How many trials have no final row, by place; places that are done are not among them.

        Args:
            attempts: the last of each trial in the store.
        """
        counts: dict[str, int] = {}
        for place, trial_id, _ in self._trials():
            last = attempts.get(trial_id)
            if last is None or last.status is Status.INFRASTRUCTURE_ERROR:
                counts[place] = counts.get(place, 0) + 1
        return counts

    def specifications(self, place: str) -> dict[str, Mapping[str, Any]]:
        """What was to be measured at a place, by key."""
        keys = {key for where, _, (key, _, _) in self._trials() if where == place}
        return {key: specification for key, specification in self._specifications().items() if key in keys}

    def with_places_of(self, now: Self) -> Row:
        """The columns of the campaign's row for a plan that has places besides: the larger plan.

        What the row says of places that `now` has not stays; of the others it says what `now` says.
        """
        gone, document = self.places - now.places, now.document
        both: dict[str, Any] = {
            "tasks": [*document["tasks"], *self._at(gone, "tasks")],
            "skips": [*document["skips"], *self._at(gone, "skips")],
            "unmatched": document["unmatched"],
            "places": {host: self.place(host) for place in gone for host in self.hosts(place)} | document["places"],
            **_factored({**self._specifications(), **now._specifications()}),
        }
        visits = [(place, *visit) for place, some in StoredPlan(self.sweep, both).visits().items() for visit in some]
        return campaign_plan(both, plan_digest=work_digest(self.sweep, visits), planned_trials=len(visits))

    def _specifications(self) -> dict[str, Mapping[str, Any]]:
        return {key: _merged(self.document["common"], own) for key, own in self.document["specifications"].items()}

    def _at(self, places: Collection[str], part: str) -> list[Mapping[str, Any]]:
        return [entry for entry in self.document[part] if self.place(entry["host"]) in places]

    def _trials(self) -> Iterator[tuple[str, str, Visit]]:
        """The place and the identity of each trial."""
        for task in self.document["tasks"]:
            place, columns = self.place(task["host"]), task["trials"]
            visits = zip(*(columns[name] for name in ("trial_key", "round", "replicate")), strict=True)
            yield from ((place, trial_id, visit) for trial_id, visit in zip(columns["trial_id"], visits, strict=True))


def refuse_stored_code(campaign_id: str, modules: Collection[str], *, allowed: bool) -> None:
    """Refuses to run Python that a store holds: rows of a store may be anybody's.

    Args:
        campaign_id: whose code it is.
        modules: its names, as `StoredPlan.modules` has them.
        allowed: whether the user has said so.

    Raises:
        ConfigurationError: there is some, and it is not allowed.
    """
    if modules and not allowed:
        raise ConfigurationError(
            f"campaign {campaign_id} measures {', '.join(sorted(modules))}, Python that the store holds and that would "
            "run here; if you trust who made it, add --allow-stored-code"
        )


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as a JSON value: the trials of a task in columns, for there may be a million of them.

    What trials share with their repetitions is written once, under their key, and so is what all of these share.
    """
    trials = chain(*(planned.task.trials for planned in plan.tasks), (skip.trial for skip in plan.skips))
    specifications = {trial.trial_key: trial.spec for trial in trials}
    return {
        "tasks": [
            {
                "task_id": planned.task.task_id,
                "host": planned.host,
                "environment": planned.task.environment,
                "trials": {name: [getattr(trial, name) for trial in planned.task.trials] for name in _OF_VISIT},
            }
            for planned in plan.tasks
        ],
        "skips": [
            {"host": skip.host, "environment": skip.environment, "reason": skip.reason, "trial": _trial(skip.trial)}
            for skip in plan.skips
        ],
        "unmatched": list(plan.unmatched),
        "places": dict(plan.places),
        **encode(_factored(specifications)),
    }


def _factored(specifications: Mapping[str, Any]) -> dict[str, Any]:
    """What all specifications have in common, also within their parts, and by key what each has besides."""
    common = _common(list(specifications.values()))
    return {"common": common, "specifications": {key: _own(spec, common) for key, spec in specifications.items()}}


def _common(values: Sequence[Any]) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    for name in _names(values[0]) if values else ():
        first, *others = (_member(value, name) for value in values)
        if all(_same(other, first) for other in others):
            shared[name] = first
        elif all(_names(value) for value in (first, *others)) and (inner := _common([first, *others])):
            shared[name] = inner
    return shared


def _own(value: Any, common: Mapping[str, Any]) -> dict[str, Any]:
    """The members that a value does not share; of a part that it shares in part, the rest."""
    own: dict[str, Any] = {}
    for name in _names(value):
        member = _member(value, name)
        if name not in common:
            own[name] = member
        elif not _same(member, common[name]):
            own[name] = _own(member, common[name])
    return own


def _merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What was divided into these two."""
    parts = [name for name in own if isinstance(common.get(name), Mapping) and isinstance(own[name], Mapping)]
    return {**common, **own, **{name: _merged(common[name], own[name]) for name in parts}}


def _same(first: Any, second: Any) -> bool:
    # To Python 1 and true are equal
    return first is second or (first == second and repr(first) == repr(second))


def _names(value: Any) -> Collection[str]:
    """The names of a value's members; none of what has none."""
    if isinstance(value, Mapping):
        return value.keys()
    return [field.name for field in fields(value)] if is_dataclass(value) else ()


def _member(value: Any, name: str) -> Any:
    return value.get(name, _ABSENT) if isinstance(value, Mapping) else getattr(value, name)


def _trial(trial: Trial) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in _OF_VISIT}
