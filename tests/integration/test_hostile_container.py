"""What a container writes into its task directory costs its own task, with one line, and nothing else."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.execution import TaskOutcome
from orchestrator.execution.fake import FakeExecutor
from orchestrator.scheduling import host_task
from runners.contract import Begin, Task, TaskFiles, encode_line
from tests.conftest import Patch
from tests.integration.test_transport import plain
from tests.recording import line_of
from tests.scripted_campaign import Kept, Lab, ready, sweep

FIRST = "00000000000000000000000000000001"
NOW = time.time_ns()


def of_record(**changed: object) -> Callable[[list[bytes]], list[bytes]]:
    """The first record says something else, in a line whose checksum is right."""
    return lambda lines: [*lines[:2], line_of(json.dumps({**plain(lines[2]), **changed})), *lines[3:]]


def appended(line: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [lines[0], line, *lines[1:]]


def sync(**changed: object) -> list[dict[str, object]]:
    return [{"mode": "sync", "calls_per_sample": 1, "durations_ns": [1], "cpu_ns": [1], **changed}]


ATTACKS = {
    "begin of an unknown trial": appended(encode_line(Begin("none", 1, NOW))),
    "begin with a long id": appended(encode_line(Begin("x" * 10**6, 1, NOW))),
    "begin of a huge round": appended(encode_line(Begin(FIRST, 1, NOW, repeats=FIRST, round=2**70))),
    "a huge start": lambda lines: [lines[0], line_of(json.dumps({**plain(lines[1]), "started_at_ns": 2**70}))],
    "a start that no calendar has": lambda lines: [
        lines[0], line_of(json.dumps({**plain(lines[1]), "started_at_ns": 2**63 - 1}))
    ],
    "another attempt": of_record(attempt=2**40),
    "half a character": of_record(reason="\udce9"),
    "half a character in a name": of_record(facts={"\ud800": 1}),
    "NaN": lambda lines: [*lines[:2], line_of(json.dumps({**plain(lines[2]), "facts": {"x": float("nan")}}))],
    "a huge number": of_record(facts={"parameters": 2**70}),
    "depth": lambda lines: [*lines[:2], line_of(b'{"type":"record","facts":' + b"[" * 10**5 + b"]" * 10**5 + b"}")],
    "negative time": of_record(series=sync(durations_ns=[-1])),
    "samples beyond 64 bits": of_record(series=sync(durations_ns=[2**80])),
    "no calls": of_record(series=sync(calls_per_sample=0)),
    "an unknown mode": of_record(series=sync(mode="evil; DROP")),
    "a huge exit code": of_record(exit_code=2**40),
    "negative memory": of_record(usage={"max_rss_bytes": -1, "user_cpu_s": 0.0, "system_cpu_s": 0.0,
        "voluntary_context_switches": 0, "involuntary_context_switches": 0, "major_page_faults": 0}),
}  # fmt: skip


def attacked(monkeypatch: Patch, spoil: Callable[[Path], None]) -> None:
    """The containers of h1 do that in their directories after they have recorded what they measured."""
    run = FakeExecutor.run

    def hostile(self: FakeExecutor, task: Task, directory: Path, stop: threading.Event) -> TaskOutcome:
        outcome = run(self, task, directory, stop)
        if "-h1-" in str(directory) or directory.name.startswith("h1-"):
            spoil(directory)
        return outcome

    monkeypatch.setattr(FakeExecutor, "run", hostile)
    # So that the driver sees what was spoilt, and not what it was before
    monkeypatch.setattr(host_task, "LOOK_S", 0.3)


def spoilt_records(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def spoil(directory: Path) -> None:
        path = Path(TaskFiles(str(directory)).records)
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return spoil


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_line_that_breaks_the_contract_fails_its_task_alone(lab: Lab, monkeypatch: Patch, attack: str) -> None:
    attacked(monkeypatch, spoilt_records(ATTACKS[attack]))
    lab.run(sweep(rounds=1), Kept(), [ready("h1"), ready("h2")])
    rows = lab.rows()
    assert [row for row in rows if row[0] == "h2"] == [("h2", "ok", 1)] * 2
    assert {row[1] for row in rows if row[0] == "h1"} <= {"ok", "infrastructure_error"}
    assert ("h1", "infrastructure_error") in {row[:2] for row in rows} or attack.startswith("begin")
    assert "of its records" in lab.notices() or "no trial of its task" in lab.notices()
    assert "is lost" not in lab.notices()
    assert all(len(line) < 1000 for line in lab.notices().splitlines())


@pytest.mark.parametrize("name", ["records.jsonl", "supervisor.log"])
@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_file_that_is_no_file_is_not_read(lab: Lab, monkeypatch: Patch, tmp_path: Path, name: str, kind: str) -> None:
    private = tmp_path / "private"
    private.write_text("a secret of the host's owner")
    private.chmod(0o600)

    def spoil(directory: Path) -> None:
        path = directory / name
        path.unlink(missing_ok=True)
        if kind == "link":
            path.symlink_to(private)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()

    attacked(monkeypatch, spoil)
    began_s = time.monotonic()
    lab.run(sweep(rounds=1), Kept(), [ready("h1"), ready("h2")])
    assert time.monotonic() - began_s < 30
    assert [row for row in lab.rows() if row[0] == "h2"] == [("h2", "ok", 1)] * 2
    assert "secret" not in str(lab.store.trials().to_pylist())
    assert name in lab.notices() or name == "supervisor.log"
