"""What the protocol and the guards of a sweep may be: the contract's classes, with bounds for their numbers."""

from dataclasses import fields, is_dataclass
from typing import Any, Final

from orchestrator.config.documents import SettingError
from runners.contract import LEGACY, STANDARD, GuardPolicy, Guards, LoadGuard, Protocol

_GUARDS: Final = tuple(guard.name for guard in fields(Guards))
_NO_WISH_S: Final = LoadGuard().wait_s
_POLICIES: Final = tuple(policy.value for policy in GuardPolicy)

_MOST: Final = 2**31 - 1
_ZERO_IS_NONE: Final = (0, _MOST)
_PERMILLE: Final = (0, 1000)
_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "pipelined_budget_ms": _ZERO_IS_NONE,
    "dispatch_budget_ms": _ZERO_IS_NONE,
    "graph_budget_ms": _ZERO_IS_NONE,
    "floor_budget_ms": _ZERO_IS_NONE,
    "profile_calls": _ZERO_IS_NONE,
    "energy_window_ms": _ZERO_IS_NONE,
    "max_memory_mib": (0, _MOST),
    "max_busy_permille": _PERMILLE,
    "max_throttled_permille": _PERMILLE,
    "window_ms": (50, 60_000),
    "wait_s": (1, 86_400),
}
"""Least and greatest value of the contract's numbers; those that are not named are positive."""


def within_bounds(settings: Any, *location: str) -> Any:
    """What the contract's class holds, if its numbers are ones that a sweep may choose."""
    for setting in fields(settings):
        value, place = getattr(settings, setting.name), (*location, setting.name)
        if is_dataclass(value):
            within_bounds(value, *place)
        elif isinstance(value, int):
            least, most = _BOUNDS.get(setting.name, (1, _MOST))
            if not least <= value <= most:
                bound = f"greater than or equal to {least}" if value < least else f"less than or equal to {most}"
                raise SettingError(f"input should be {bound}, but it is {value}", *place)
    return settings


def consistent(protocol: Protocol) -> Protocol:
    """A protocol whose numbers do not contradict each other."""
    if protocol.procedure not in (STANDARD, LEGACY):
        problem = f"input should be '{STANDARD}' or '{LEGACY}', but it is \"{protocol.procedure}\""
        raise SettingError(problem, "procedure")
    if protocol.warmup_max_ms < protocol.warmup_min_ms:
        raise ValueError("warmup_max_ms is below warmup_min_ms; raise it or lower the minimum")
    if protocol.cycles < protocol.min_cycles:
        raise ValueError("cycles is below min_cycles; raise it or lower the minimum")
    return protocol


def guards_in_full(guards: object) -> object:
    """One policy may stand for all guards, and one for a guard whose limits are not changed."""
    if isinstance(guards, str):
        return {name: _guard_in_full(guards) for name in _GUARDS}
    return {name: _guard_in_full(guard, name) for name, guard in guards.items()} if isinstance(guards, dict) else guards


def _guard_in_full(guard: object, *location: str) -> object:
    if isinstance(guard, str):
        if guard not in _POLICIES:
            raise SettingError(f"unknown policy {guard!r}; use one of {', '.join(_POLICIES)}", *location)
        return {"policy": guard}
    # The default is no wish: what was read and written again has all keys
    if isinstance(guard, dict) and guard.get("wait_s", _NO_WISH_S) != _NO_WISH_S:
        policy = guard.get("policy", GuardPolicy.FLAG.value)
        if policy != GuardPolicy.WAIT.value:
            problem = f"wait_s has no meaning with policy {policy}; remove it, or set policy: wait"
            raise SettingError(problem, *location)
    return guard
