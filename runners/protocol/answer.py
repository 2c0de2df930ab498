"""What a child process tells the supervisor, in one JSON document."""

import json
from dataclasses import dataclass, field, fields
from typing import Dict, Optional, Tuple

from runners.contract import ContractError, Phases, Series, Status, Verification, check_turns, compact_json, decode
from runners.contract.record import FactValue

_OWN_STATUSES = (
    *(Status.OK, Status.WRONG_OUTPUT, Status.UNSUPPORTED, Status.OOM, Status.CRASHED, Status.INFRASTRUCTURE_ERROR),
)


@dataclass(frozen=True)
class Answer:
    """The part of a record that only the measured process can know."""

    status: Status
    reason: Optional[str] = None
    phases: Phases = field(default_factory=Phases)
    series: Tuple[Series, ...] = ()
    steady: Optional[bool] = None
    verification: Optional[Verification] = None
    facts: Dict[str, FactValue] = field(default_factory=dict)
    counts: Dict[str, FactValue] = field(default_factory=dict)
    """Facts that are the same in every process of the specification, of one that was to find them."""


def encode_answer(answer: Answer) -> bytes:
    """The document, as the child writes it."""
    return compact_json(answer) + b"\n"


def decode_answer(data: bytes) -> Answer:
    """Reads and checks what a child wrote.

    Raises:
        ContractError: it is no answer.
    """
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ContractError("not a JSON document: %s" % error) from None
    answer = decode(Answer, document, "answer")
    if answer.status not in _OWN_STATUSES:
        raise ContractError("answer.status: %s is not for a child to say" % answer.status.value)
    if (answer.reason is None) != (answer.status is Status.OK):
        raise ContractError("answer.reason: needed for every status but ok")
    for series in answer.series:
        if len(series.durations_ns) != len(series.cpu_ns):
            raise ContractError("answer.series: %s has lists of different length" % series.mode)
        if len(series.pressure_ns) > len(series.durations_ns):
            raise ContractError("answer.series: %s has more pressures than samples" % series.mode)
    check_turns(answer.series, "answer")
    return answer


def merge_phases(first: Phases, second: Phases) -> Phases:
    """The phases of two processes of one trial; each phase is reached in one of them."""
    merged = {}
    for spec in fields(Phases):
        value = getattr(second, spec.name)
        merged[spec.name] = getattr(first, spec.name) if value is None else value
    return Phases(**merged)


def _refuse_constant(name: str) -> None:
    raise ValueError("%s is no number of JSON" % name)
