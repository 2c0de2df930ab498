"""What a sweep holds besides names and numbers: protocol and guards within bounds, and models of somebody's own.

A model is `module: FILE.py:FUNCTION`, and what the file says; the protocol and the guards are the contract's classes.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationInfo

from orchestrator.boundary import read_foreign_file
from orchestrator.config.documents import SettingError, StrictModel
from orchestrator.errors import ForeignDataError
from runners.contract import LEGACY, STANDARD, GuardPolicy, Guards, LoadGuard, Protocol
from runners.contract.user_module import (
    MAX_MODULE_BYTES,
    ModuleError,
    Signature,
    module_option,
    signature_of,
)

DIRECTORY: Final = "directory"
"""Of the sweep, in the context of its validation: files are named from there."""
STORED: Final = "stored"
"""In the context of a sweep out of the store: the texts of its files, by `FILE.py:FUNCTION`."""

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


class UserModule(StrictModel):
    """A function of a file of the user's, as it was read."""

    file: str
    """Its name, without directories."""
    function: str
    source: str

    @property
    def option(self) -> str:
        """How the options of a workload, and so its rows, name it."""
        return module_option(self.file, self.function, self.source)

    def signature(self) -> Signature:
        """What the function takes.

        Raises:
            ValueError: the file is no Python, or has no such function that returns a pair; names its line.
        """
        try:
            return signature_of(self.source, self.function)
        except ModuleError as wrong:
            raise ValueError(f"{self.file}{'' if wrong.line is None else f':{wrong.line}'}: {wrong}") from None


def read_module(value: object, info: ValidationInfo) -> object:
    """What a sweep says as `module`, with the file that it names."""
    if isinstance(value, dict):
        return UserModule(**value)  # of a sweep that was read before
    if not isinstance(value, str):
        return value
    named, _, function = value.rpartition(":")
    if not re.fullmatch(r".+\.py", named) or not function.isidentifier():
        raise ValueError(f"expected FILE.py:FUNCTION, such as mine.py:build, not {value!r}")
    context: Mapping[str, object] = info.context or {}
    path = Path(str(context.get(DIRECTORY, "."))) / named
    if not re.fullmatch(r"[\w.-]+", path.name, re.ASCII):
        raise ValueError(f"the name of a file has letters, digits and ._- alone; rename {path.name!r}")
    stored = context.get(STORED)
    source = _stored(stored, path.name, function) if isinstance(stored, Mapping) else _read(path)
    return UserModule(file=path.name, function=function, source=source)


def _stored(texts: Mapping[str, str], file: str, function: str) -> str:
    name = f"{file}:{function}"
    if name not in texts:
        raise ValueError(f"the campaign does not have the text of {name}; run its sweep again in place of resuming it")
    return texts[name]


def _read(path: Path) -> str:
    try:
        return read_foreign_file(path, MAX_MODULE_BYTES, follows_links=True).decode("utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}; name it as seen from the sweep's directory") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    except ForeignDataError as error:
        raise ValueError(str(error)) from None
