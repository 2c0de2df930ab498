"""The identity of what is measured, and of each visit of it."""

from collections.abc import Iterable

from orchestrator.planning.model import EnvironmentPin
from runners.contract import METHOD_VERSION, Trial, TrialSpec, digest


def trial_key(spec: TrialSpec, pin: EnvironmentPin, method_version: int = METHOD_VERSION) -> str:
    """Identity of what is measured: equal keys may be compared over time, different ones are different trials."""
    return digest(
        {
            "spec": spec,
            "method_version": method_version,
            "environment": pin.name,
            "isolation": pin.isolation,
            "lock_sha256": pin.lock_sha256,
            # Neither id nor digest: they depend on the engine and the registry, not on what is measured.
            "image": pin.content,
        }
    )[:32]


def work_digest(sweep_name: str, visits: Iterable[tuple[str, str, int, int]]) -> str:
    """Identity of the work of a plan, without the campaign's id and the order.

    Args:
        sweep_name: of the sweep.
        visits: place, key, round and replicate of each trial.
    """
    return digest({"sweep": sweep_name, "visits": [list(visit) for visit in sorted(visits)]})


def visit(
    campaign_id: str,
    place: str,
    key: str,
    spec: TrialSpec,
    round_number: int,
    order: int,
    replicate: int,
    timeout_s: int,
) -> Trial:
    """One visit of a specification, with its identity in the store.

    Args:
        campaign_id: the campaign that it belongs to.
        place: of `planning.place`: where it may run. A host's name, or what stands for several hosts; then the visit
            is the same whichever of them it runs on.
        key: of `trial_key`.
        spec: what is measured.
        round_number: 1 and up.
        order: its place in the round.
        replicate: 0, or 1 for the second half of an A/A pair.
        timeout_s: limit of the whole trial, in seconds.
    """
    identity = {"campaign": campaign_id, "place": place, "key": key, "round": round_number, "replicate": replicate}
    return Trial(
        trial_id=digest(identity)[:32],
        trial_key=key,
        round=round_number,
        order=order,
        replicate=replicate,
        attempt=1,
        timeout_s=timeout_s,
        spec=spec,
    )
