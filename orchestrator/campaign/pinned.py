"""Goes on with one campaign of the store, and with nothing else than what it began with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.campaign.reproduce.environment import compare
from orchestrator.campaign.reproduce.reproduction import is_reproduction
from orchestrator.campaign.reproduce.stored import stored_pin
from orchestrator.campaign.resume import ResumeDecision, continued, other_hardware
from orchestrator.campaign.stored_plan import StoredPlan, plan_document
from orchestrator.config import Sweep
from orchestrator.environments import Catalogue, lock_sha256, short_digest
from orchestrator.errors import ConfigurationError, NoUsableHostError, some_names, some_of
from orchestrator.hosts.check import differences
from orchestrator.planning import EnvironmentPin, Plan, PlanningHost, plan
from orchestrator.store import Store
from runners.contract import METHOD_VERSION, encode

_SHOWN = 6
"""Differences that are named; the others are counted."""

_PIN_COLUMNS = ("environment", "environment_id", "isolation", "executor_reason", "lock_sha256", "image_id")
_COLUMNS = (*_PIN_COLUMNS, "image_digest", "host", "method_version", "runner_sha256", "started_at")


@dataclass(frozen=True)
class Pinned:
    """A campaign that is to go on, as its rows in the store tell of it."""

    row: Mapping[str, Any]
    """Of `campaigns`."""
    plan: StoredPlan
    ran: Sequence[Mapping[str, Any]]
    """What its trials ran in, the newest first."""
    seen: Mapping[str, Mapping[str, Any]]
    """Rows of `environments`, by their id."""

    @property
    def campaign_id(self) -> str:
        """Its identity."""
        return str(self.row["campaign_id"])

    def pins(self, place: str) -> dict[str, EnvironmentPin]:
        """The environments that trials of a place ran in, by name, as the newest of them had them."""
        here = [row for row in self.ran if self.plan.place(row["host"] or "") == place]
        return {row["environment"]: stored_pin(row, self.seen.get(row["environment_id"], {})) for row in reversed(here)}

    def refusal(self, problems: Iterable[str]) -> ConfigurationError:
        """The error that names what is not as it was, and what to do."""
        commit = self.row["git_commit"]
        where = f" (it began at commit {commit})" if commit else ""
        return ConfigurationError(
            f"campaign {self.campaign_id} cannot go on, because its trials would not be the same: "
            f"{'; '.join(some_of([*dict.fromkeys(problems)], _SHOWN))}; "
            f"bring back what it is pinned to{where}, or start anew with `taxmeter sweep run --resume never`"
        )


def pinned(row: Mapping[str, Any], store: Store) -> Pinned:
    """Looks up what a campaign is pinned to.

    Raises:
        ConfigurationError: it reproduces another one, or its row has no plan.
        ForeignDataError: the plan cannot be read.
    """
    campaign_id = row["campaign_id"]
    if row["plan"] is not None and is_reproduction(row):
        command = row["sweep_document"].partition("`")[2].partition("`")[0]
        raise ConfigurationError(
            f"campaign {campaign_id} reproduces another one; `{command}` goes on with it by itself"
        )
    stored = StoredPlan.of(row)
    if stored is None:
        raise ConfigurationError(f"campaign {campaign_id} has no plan in the store: it was imported")
    trials = store.trials(list(_COLUMNS), campaign_id=campaign_id)
    newest_first = trials.sort_by([("started_at", "descending")]).to_pylist()
    ran = [trial for trial in newest_first if trial["runner_sha256"] is not None]
    seen = {environment["environment_id"]: environment for environment in store.environments().to_pylist()}
    return Pinned(row, stored, ran, seen)


def refuse_other_locks(campaign: Pinned, catalogue: Catalogue) -> None:
    """Refuses, before anything is built, locks that are not those of then.

    Raises:
        ConfigurationError: with every difference.
    """
    problems = []
    for name, then in {row["environment"]: row["lock_sha256"] for row in reversed(campaign.ran)}.items():
        entry = catalogue.entries.get(name)
        if entry is None:
            problems.append(f"environment {name}: the catalogue does not have it any more")
        elif entry.unresolved is None and (now := lock_sha256(entry)) != then:
            problems.append(f"environment {name}: lock: expected {_short(then)}, found {_short(now)}")
    if problems:
        raise campaign.refusal(problems)


def go_on(campaign: Pinned, sweep: Sweep, hosts: Sequence[PlanningHost], store: Store) -> ResumeDecision:
    """The campaign on the hosts at hand, which are ready.

    Raises:
        ConfigurationError: on one of them its trials would not be the same; says in what.
        NoUsableHostError: it has nothing to do on any of them.
    """
    now = plan(sweep, hosts, campaign.campaign_id)
    today = StoredPlan(sweep.name, plan_document(now))
    wrong = sorted(campaign.plan.disagreeing(today))
    if wrong:
        raise campaign.refusal(line for place in wrong for line in _problems(place, campaign, now, hosts))
    if other := other_hardware(campaign.campaign_id, hosts, store):
        raise campaign.refusal(other)
    if not campaign.plan.shares_work(today):
        places, here = some_names(sorted(campaign.plan.places)), some_names(now.places) or "none"
        raise NoUsableHostError(
            f"campaign {campaign.campaign_id} has trials for {places}, and at hand is {here}"
            "; name an inventory that has one of them with --inventory"
        )
    return continued(campaign.campaign_id, campaign.plan, sweep, hosts, store)


def _problems(place: str, campaign: Pinned, now: Plan, hosts: Sequence[PlanningHost]) -> list[str]:
    """Why a place would not do the same."""
    host = next(host for host in hosts if now.places.get(host.name) == place)
    problems = [
        f"{host.name}: environment {name}: {line}"
        for name, pin in campaign.pins(place).items()
        if name in host.environments
        for line in compare(pin, host.environments[name]).lines
    ]
    methods = {row["method_version"] for row in campaign.ran} - {METHOD_VERSION}
    problems += [f"method version: expected {method}, found {METHOD_VERSION}" for method in methods]
    problems += [f"{host.name}: {line}" for line in _other_points(place, campaign.plan, now, host.name)]
    unknown = "its environments are not those that it was planned for, and nothing ran that tells how they differ"
    return problems or [f"{host.name}: {unknown}"]


def _other_points(place: str, stored: StoredPlan, now: Plan, host: str) -> list[str]:
    """In what the points of the parameter space differ, whatever they would run in."""
    then = list(stored.specifications(place).values())
    trials = {trial.trial_key: trial for planned in now.tasks if planned.host == host for trial in planned.task.trials}
    today = [encode(trial.spec) for trial in trials.values()]
    impossible = [(encode(skip.trial.spec), skip.reason) for skip in now.skips if skip.host == host]
    lines = []
    for spec in then:
        if spec in today:
            continue
        reason = next((why for other, why in impossible if other == spec), None)
        found = min((differences(spec, other) for other in today), key=len, default=[])
        if reason is not None:
            lines.append(f"what it was to run cannot run there: {reason}")
        else:
            lines += [f"{point.key}: expected {point.left}, found {point.right}" for point in found]
    return list(dict.fromkeys(lines))


def _short(digest: str | None) -> str:
    return "none" if digest is None else short_digest(digest)
