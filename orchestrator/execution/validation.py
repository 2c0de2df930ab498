"""What a line of a container may say: the one place where types, sizes and ranges of records are decided.

A line that says something else cannot be used; it costs its task, and nothing else.
"""

import dataclasses
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from runners.contract import Begin, ContractError, Environment, Line, Series, TrialRecord, Usage

MODES: Final = frozenset(
    {"warmup", "sync", "pipelined", "dispatch", "graph", "floor", "floor_large", "floor_threads", "legacy"}
)

_MAX_NAME: Final = 200
_MAX_TEXT: Final = 2**17
_MAX_ITEMS: Final = 10_000
"""Of a mapping, such as installed distributions; samples are bounded by the length of the line."""

_INT32: Final = range(2**31)
_INT64: Final = range(-(2**63), 2**63)
_EXIT_CODES: Final = range(-255, 256)
_TIME_NS: Final = range(4_102_444_800 * 10**9)
"""Since the epoch, until the year 2100."""

_DURATION_NS: Final = range(10**16)
"""Until 115 days."""


def check_line(line: Line) -> None:
    """Refuses what no runner of ours says, though it has the types of the contract.

    Raises:
        ContractError: an identifier or a text is too long or cannot be encoded, or a number is out of its range.
    """
    for where, value in _values(line, line.type):
        _check_scalar(where, value)
    if isinstance(line, Begin | TrialRecord):
        _check_name(line.trial_id, "trial_id")
        _check_range(line.attempt, _INT32, "attempt")
        _check_range(line.started_at_ns, _TIME_NS, "started_at_ns")
    if isinstance(line, Begin):
        _check_range(line.round, _INT32, "round")
    elif isinstance(line, Environment):
        _check_name(line.runner_sha256, "runner_sha256")
    elif isinstance(line, TrialRecord):
        _check_range(line.finished_at_ns, _TIME_NS, "finished_at_ns")
        _check_range(line.exit_code, _EXIT_CODES, "exit_code")
        for name, seconds in line.phases.seconds.items():
            if seconds < 0:
                raise ContractError(f"phases.{name}: {seconds} is negative")
        for series in line.series:
            _check_series(series)
        if line.usage is not None:
            _check_usage(line.usage)


def _values(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """All scalars but samples, which have ranges of their own, and all keys."""
    if isinstance(value, Enum):
        return
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if not isinstance(value, Series) or field.name == "mode":
                yield from _values(getattr(value, field.name), f"{where}.{field.name}")
    elif isinstance(value, dict):
        if len(value) > _MAX_ITEMS:
            raise ContractError(f"{where}: {len(value)} values, at most {_MAX_ITEMS} are taken")
        for key, item in value.items():
            _check_name(key, f"a name in {where}")
            yield where, item
    elif isinstance(value, tuple):
        if len(value) > _MAX_ITEMS:
            raise ContractError(f"{where}: {len(value)} values, at most {_MAX_ITEMS} are taken")
        for item in value:
            yield from _values(item, where)
    else:
        yield where, value


def _check_scalar(where: str, value: object) -> None:
    if isinstance(value, str):
        if len(value) > _MAX_TEXT:
            raise ContractError(f"{where}: {len(value)} characters, at most {_MAX_TEXT} are taken")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ContractError(f"{where}: holds half of a surrogate pair") from None
    elif isinstance(value, int):
        _check_range(value, _INT64, where)


def _check_name(name: str, where: str) -> None:
    if len(name) > _MAX_NAME:
        raise ContractError(f"{where}: {len(name)} characters, at most {_MAX_NAME} are taken")
    _check_scalar(where, name)


def _check_range(number: int | None, allowed: range, where: str) -> None:
    if number is not None and number not in allowed:
        raise ContractError(f"{where}: {_shown(number)} is not from {allowed.start} to {allowed.stop - 1}")


def _check_series(series: Series) -> None:
    if series.mode not in MODES:
        raise ContractError(f"series: {series.mode[:40]!r} is no timing mode")
    where = f"series.{series.mode}"
    if series.calls_per_sample < 1:
        raise ContractError(f"{where}.calls_per_sample: {_shown(series.calls_per_sample)} is less than 1")
    _check_range(series.calls_per_sample, _INT32, f"{where}.calls_per_sample")
    for name in ("durations_ns", "cpu_ns", "pressure_ns"):
        samples = getattr(series, name)
        for extreme in (min(samples, default=0), max(samples, default=0)):
            _check_range(extreme, _DURATION_NS, f"{where}.{name}")
    _check_range(series.pressure_total_ns, _DURATION_NS, f"{where}.pressure_total_ns")
    _check_range(max(series.turns, default=0), _INT32, f"{where}.turns")


def _check_usage(usage: Usage) -> None:
    for name, count in vars(usage).items():
        if count < 0:
            raise ContractError(f"usage.{name}: {_shown(count)} is negative")


def _shown(number: float) -> str:
    """Of a number whose digits may fill a page."""
    return str(number) if abs(number) < 2**64 else "a number beyond 64 bits"
