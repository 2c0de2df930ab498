"""Whether the rebuilt specifications of stored trials mean today what they meant."""

from orchestrator.campaign.reproducing.stored import Wanted
from orchestrator.errors import ConfigurationError
from runners.contract import METHOD_VERSION, TrialSpec
from runners.contract.catalogue import BACKENDS, WORKLOADS, refusal


def refuse_another_method(wanted: Wanted, *, allowed: bool) -> dict[str, str]:
    """Checks that the rebuilt specifications mean what the stored ones meant.

    Returns:
        By stored key, what is said about it in the new rows; nothing of those that are as they were.

    Raises:
        ConfigurationError: this version cannot run a trial at all; or another method, or a specification that cannot
            be rebuilt, and that is not allowed.
    """
    problems: dict[str, str] = {}
    version = f"taxmeter {wanted.campaign.get('taxmeter_version')}, commit {wanted.campaign.get('git_commit')}"
    for one in wanted.configurations:
        unknown = _unknown(one.spec)
        if unknown is not None:
            raise ConfigurationError(
                f"{one.name} cannot be reproduced: {unknown}; use the version that measured it ({version})"
            )
        problem = None
        if one.method_version != METHOD_VERSION:
            problem = f"method version {one.method_version} then, {METHOD_VERSION} now"
        elif not one.is_rebuilt:
            problem = f"specification with key {one.trial_key} then, {one.rebuilt_key} now"
        if problem is None:
            continue
        if not allowed:
            raise ConfigurationError(
                f"{one.name} cannot be reproduced: {problem}, so that the numbers would not mean the same; "
                f"use the version that measured it ({version}), or add --allow-different-method"
            )
        problems[one.trial_key] = problem
    return problems


def _unknown(spec: TrialSpec) -> str | None:
    """Why this version cannot run a specification of another one."""
    for kind, name, known in (("workload", spec.workload.name, WORKLOADS), ("backend", spec.backend.name, BACKENDS)):
        if name not in known:
            return f"this version has no {kind} {name}"
    problem = refusal(spec)
    return None if problem is None else f"this version cannot run it: {problem}"
