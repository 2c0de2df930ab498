"""Finds in the store what is to be run again, and rebuilds its specification exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.boundary import validated
from orchestrator.campaign.stored_plan import StoredPlan
from orchestrator.errors import ConfigurationError, some_of
from orchestrator.planning import EnvironmentPin, Isolation, trial_key
from orchestrator.store import Store
from runners.contract import ContractError, Status, TrialSpec, decode
from runners.contract.user_module import MODULE_OPTION, module_named
from runners.system import cores_in, cores_text

_AMBIGUOUS_SHOWN = 3
_COLUMNS = (
    *("trial_id", "attempt", "trial_key", "campaign_id", "round", "replicate", "status", "reason", "started_at"),
    *("workload", "batch", "sequence_length", "image_size", "workload_options", "backend", "backend_options"),
    *("dtype", "device", "threads", "seed", "protocol", "timeout_s", "method_version", "contract_version"),
    *("environment", "environment_id", "image_digest", "image_id", "lock_sha256", "isolation", "executor_reason"),
    *("host", "trial_cores", "memory_limit_bytes", "runner_sha256"),
)

_OBJECTS = ("workload_options", "backend_options", "protocol")

_Row = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """What a container or process was given; null if the store does not say."""

    cores: tuple[int, ...] | None
    memory_bytes: int | None

    def __str__(self) -> str:
        """For a message."""
        cores = "unknown cores" if self.cores is None else f"cores {cores_text(self.cores)}"
        memory = "unknown memory" if self.memory_bytes is None else f"{self.memory_bytes} bytes of memory"
        return f"{cores} and {memory}"


@dataclass(frozen=True)
class Configuration:
    """One trial key on one host, as the store has it."""

    host: str
    trial_key: str
    spec: TrialSpec
    timeout_s: int
    trial_ids: tuple[str, ...]
    """Those that had these limits, however they ended."""
    rounds: int
    """How many of its rounds ended ok."""
    pin: EnvironmentPin
    versions: Mapping[str, str]
    """Every distribution that was seen inside."""
    limits: Limits
    method_version: int

    @property
    def name(self) -> str:
        """What it is, in a few words, for a message."""
        spec = self.spec
        return f"{spec.workload.name} {spec.backend.name} batch {spec.workload.batch}"

    @property
    def rebuilt_key(self) -> str:
        """The key of the rebuilt specification, by the method of then: the stored one, if nothing was lost."""
        return trial_key(self.spec, self.pin, self.method_version)


@dataclass(frozen=True)
class StoredTrials:
    """What a command asks to run again."""

    campaign: Mapping[str, Any]
    """Its row in the store."""
    trial_id: str | None
    """Null if the whole campaign is meant."""
    configurations: tuple[Configuration, ...]

    @property
    def campaign_id(self) -> str:
        """The campaign that is reproduced."""
        return str(self.campaign["campaign_id"])

    @property
    def modules(self) -> frozenset[str]:
        """The files of the user's that it would run, as `FILE.py:FUNCTION`."""
        own = (configuration.spec.workload for configuration in self.configurations)
        return frozenset(":".join(module_named(str(w.options[MODULE_OPTION]))) for w in own if w.source is not None)


def find(store: Store, text: str, directory: Path) -> StoredTrials:
    """What a trial id, the beginning of one, or a campaign id means.

    Args:
        store: where to look.
        text: as the user wrote it.
        directory: of the store, for errors.

    Raises:
        ConfigurationError: nothing or more than one thing is called so, or nothing of it ran.
    """
    campaigns = {row["campaign_id"]: row for row in store.campaigns().to_pylist()}
    if text in campaigns:
        rows = _last_attempts(store.trials(list(_COLUMNS), campaign_id=text).to_pylist())
        ran = [row for row in rows if row["status"] == Status.OK.value]
        if not ran:
            raise ConfigurationError(f"no trial of campaign {text} ended ok; name a trial of it", file=directory)
        return StoredTrials(campaigns[text], None, _configurations(ran, rows, store, directory, campaigns[text]))
    trial_id, campaign_id = _trial(store, text, directory)
    rows = _last_attempts(store.trials(list(_COLUMNS), campaign_id=campaign_id).to_pylist())
    chosen = next(row for row in rows if row["trial_id"] == trial_id)
    # Its environment is known all the same, as it was declared; what nobody ever saw is the code that ran.
    if chosen["runner_sha256"] is None:
        reason = chosen["reason"] or "no reason given"
        problem = f"trial {trial_id} never ran ({chosen['status']}: {reason}), so there is nothing to reproduce"
        raise ConfigurationError(problem, file=directory)
    alike = [row for row in rows if _alike(row) == _alike(chosen)]
    ran = [row for row in alike if row["status"] == Status.OK.value] or [chosen]
    campaign = campaigns.get(campaign_id, {"campaign_id": campaign_id, "sweep": "unknown"})
    return StoredTrials(campaign, trial_id, _configurations(ran, rows, store, directory, campaign))


def _trial(store: Store, text: str, directory: Path) -> tuple[str, str]:
    rows = store.trials(["trial_id", "campaign_id"]).to_pylist()
    found = {row["trial_id"]: row["campaign_id"] for row in rows if text and row["trial_id"].startswith(text)}
    if text in found:
        found = {text: found[text]}
    if not found:
        problem = f"no trial and no campaign is called {text!r}; `taxmeter results ls` lists the campaigns"
        raise ConfigurationError(problem, file=directory)
    if len(found) > 1:
        shown = ", ".join(some_of(sorted(found), _AMBIGUOUS_SHOWN))
        raise ConfigurationError(f"{len(found)} trials begin with {text}: {shown}; write more of it", file=directory)
    [(trial_id, campaign_id)] = found.items()
    return trial_id, campaign_id


def _alike(row: _Row) -> tuple[object, ...]:
    return *_place(row), _limits(row)


def _place(row: _Row) -> tuple[str, str]:
    return row["host"] or "", row["trial_key"]


def _last_attempts(rows: Sequence[_Row]) -> list[_Row]:
    ordered = sorted(rows, key=lambda row: row["attempt"])
    return list({row["trial_id"]: row for row in ordered}.values())


def _configurations(
    ran: Sequence[_Row], rows: Sequence[_Row], store: Store, directory: Path, campaign: Mapping[str, Any]
) -> tuple[Configuration, ...]:
    """Those of the rows that `ran`; of all `rows` of the campaign they have the ids of those that are alike."""
    environments = {row["environment_id"]: row for row in store.environments().to_pylist()}
    groups: dict[tuple[str, str], list[_Row]] = {}
    for row in ran:
        groups.setdefault(_place(row), []).append(row)
    alike: dict[tuple[object, ...], list[str]] = {}
    for row in rows:
        alike.setdefault(_alike(row), []).append(row["trial_id"])
    plan = StoredPlan.of({"plan": None, **campaign})
    modules = {} if plan is None else plan.modules
    return tuple(_configuration(groups[key], alike, environments, directory, modules) for key in sorted(groups))


def _configuration(
    rows: Sequence[_Row],
    alike: Mapping[tuple[object, ...], Sequence[str]],
    environments: Mapping[str, _Row],
    directory: Path,
    modules: Mapping[str, str],
) -> Configuration:
    newest = max(rows, key=lambda row: row["started_at"])
    _refuse_mixed_limits(rows, directory)
    if newest["lock_sha256"] is None:
        raise ConfigurationError(
            f"environment {newest['environment']} was put together by hand and has no lock, so it cannot be made again",
            file=directory,
        )
    seen = environments.get(newest["environment_id"], {})
    return Configuration(
        host=newest["host"] or "",
        trial_key=newest["trial_key"],
        spec=_spec(newest, directory, modules),
        timeout_s=round(newest["timeout_s"]),
        trial_ids=tuple(sorted(alike[_alike(newest)])),
        rounds=len({row["round"] for row in rows}),
        pin=stored_pin(newest, seen),
        versions=_object(seen.get("versions"), f"versions of environment {newest['environment_id']}"),
        limits=_limits(newest),
        method_version=newest["method_version"],
    )


def _refuse_mixed_limits(rows: Sequence[_Row], directory: Path) -> None:
    by_limits = {_limits(row): row for row in rows}
    if len(by_limits) > 1:
        ways = " and ".join(
            sorted(f"with {limits} (such as {row['trial_id'][:12]})" for limits, row in by_limits.items())
        )
        raise ConfigurationError(
            f"{rows[0]['workload']} {rows[0]['backend']} batch {rows[0]['batch']} ran {ways} in this campaign; "
            "say which of them is meant by the id of a trial",
            file=directory,
        )


def _spec(row: _Row, directory: Path, modules: Mapping[str, str]) -> TrialSpec:
    workload = {key: row[key] for key in ("batch", "sequence_length", "image_size")}
    texts = {name: _object(row[name], f"{name} of trial {row['trial_id']}") for name in _OBJECTS}
    options = texts["workload_options"]
    workload |= {"name": row["workload"], "options": options}
    if MODULE_OPTION in options:
        name = ":".join(module_named(str(options[MODULE_OPTION])))
        if name not in modules:
            problem = f"trial {row['trial_id']} measures {name}, whose text is not in the store: it was imported"
            raise ConfigurationError(problem, file=directory)
        workload["source"] = modules[name]
    document = {key: row[key] for key in ("dtype", "device", "threads", "seed")} | {
        "workload": workload,
        "backend": {"name": row["backend"], "options": texts["backend_options"]},
        "protocol": texts["protocol"],
    }
    try:
        return decode(TrialSpec, document, "spec")
    except ContractError as error:
        raise ConfigurationError(
            f"trial {row['trial_id']} was measured with contract {row['contract_version']}, "
            f"which this taxmeter cannot read: {error}",
            file=directory,
        ) from None


def _object(text: str | None, where: str) -> dict[str, Any]:
    return validated(dict[str, Any], text or "{}", where)


def stored_pin(row: Mapping[str, Any], seen: Mapping[str, Any]) -> EnvironmentPin:
    """The environment that a trial ran in.

    Args:
        row: of `trials`.
        seen: the row of `environments` that it refers to; empty if there is none.
    """
    return EnvironmentPin(
        row["environment"],
        Isolation(row["isolation"]),
        row["executor_reason"] or "",
        row["lock_sha256"],
        image_id=row["image_id"],
        image_digest=row["image_digest"],
        image_layers=tuple(seen.get("image_layers") or ()),
        image_config_sha256=seen.get("image_config_sha256"),
    )


def _limits(row: _Row) -> Limits:
    cores = row["trial_cores"]
    return Limits(cores_in(cores) if cores else None, row["memory_limit_bytes"])
