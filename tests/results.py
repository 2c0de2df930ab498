"""Stores for the tests of those who read results."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.store import Row, Store, Writer, campaign_row, environment_row, system_row
from runners.contract import encode
from runners.system import Fingerprint, collect, hot_columns, hw_id, system_id
from tests.conftest import Captured
from tests.storing import row

FINGERPRINT: Fingerprint = collect()
SYSTEM = system_id(FINGERPRINT)
ENVIRONMENT = "e" * 32
Known = TypeVar("Known")
CAMPAIGNS = ("night-20251120T000000Z-aaaaaa", "night-20251205T000000Z-bbbbbb")


def trial(name: str, campaign: str = CAMPAIGNS[0], **more: object) -> Row:
    """A row of `trials` that joins to the other tables."""
    joins = {"system_id": SYSTEM, "hw_id": hw_id(FINGERPRINT), "environment_id": ENVIRONMENT, "host": "lab1"}
    return row(name, **{**joins, "campaign_id": campaign, **more})  # type: ignore[arg-type]


def put_dimensions(writer: Writer) -> None:
    """The system, the environment and the campaigns that `trial` refers to."""
    fingerprint = {**encode(FINGERPRINT), "private": None}
    writer.put("systems", [system_row(SYSTEM, hw_id(FINGERPRINT), hot_columns(FINGERPRINT), fingerprint)])
    environment = environment_row(ENVIRONMENT, "cpu", {"python": "3.11.2"}, {}, image_digest=None, lock_sha256=None)
    writer.put("environments", [environment])
    texts = {"sweep_document": "version: 1", "inventory_document": "version: 1\nhosts: {lab1: {}}"}
    for number, name in enumerate(CAMPAIGNS):
        started_at = datetime(2025, 11 + number, 20 - 15 * number, tzinfo=UTC)
        totals = {"plan_digest": "p", "planned_trials": 3, "taxmeter_version": "1", "git_commit": None}
        writer.put_campaign(campaign_row(name, started_at, "night", **texts, **totals))  # type: ignore[arg-type]


def make_store(directory: Path, *rows: Row) -> Store:
    """A store of sealed rows."""
    store = Store.open(directory)
    with store.writer() as writer:
        put_dimensions(writer)
        writer.append(rows)
    return store


def known(value: Known | None) -> Known:
    """A value that is there."""
    assert value is not None
    return value


def taxmeter(*arguments: object) -> int:
    """Runs a command."""
    return run([str(one) for one in arguments])


def told(captured: Captured, *arguments: object, code: int = ExitCode.OK) -> str:
    """What a command prints that ends with a code."""
    captured.readouterr()
    assert taxmeter(*arguments) == code, captured.readouterr().err
    return captured.readouterr().out


def refused(captured: Captured, *arguments: object, code: int = ExitCode.USAGE) -> str:
    """Why a command is refused: one line, and nothing else is printed."""
    captured.readouterr()
    assert taxmeter(*arguments) == code
    printed = captured.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1), printed
    return printed.err


def system_document(**changes: object) -> str:
    """The fingerprint of this machine as JSON, with changes."""
    return json.dumps({**encode(FINGERPRINT), **changes})
