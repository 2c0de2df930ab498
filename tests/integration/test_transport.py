"""From a host's records to the store: what the stream, the acknowledgements and the leftovers promise."""

import fcntl
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign import Notice, TrialRecorded
from orchestrator.errors import StoreError
from orchestrator.execution import INSTALLED, FakeSettings, RecordReader, TaskOutcome
from orchestrator.execution.fake import FakeExecutor
from orchestrator.scheduling import (
    Acknowledgement,
    Disposal,
    HostObserved,
    RecordPiece,
    TaskEnded,
    TaskEvent,
    TaskRequest,
    acknowledge,
    host_task,
    remove_directories,
    run_on_host,
)
from orchestrator.store import Writer
from orchestrator.store.origin import read_origin
from runners.contract import Task, TaskFiles, TrialRecord
from tests.conftest import Patch
from tests.recording import line_of
from tests.scripted_campaign import Kept, Lab, ready, sweep
from tests.storing import fill


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


class Killed(BaseException):
    """The driver dies here, and does nothing more."""


class Deadly(Kept):
    """Kills the driver when it has read so many records of a task, of which the host goes on to record all."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self._records = records

    def events(self) -> Any:
        reader, seen = RecordReader(), 0
        for event in run_on_host(self._queue.popleft()):
            if isinstance(event, RecordPiece):
                seen += sum(isinstance(read.line, TrialRecord) for read in reader.feed(event.data))
            if seen <= self._records and not isinstance(event, TaskEnded):
                yield event
        raise Killed


def directories(lab: Lab) -> list[Path]:
    return sorted(lab.files.campaigns.glob("*/*-cpu-*"))


def killed(lab: Lab, rounds: int = 1) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.campaign.driver.campaign_run.CampaignRun._end_here", lambda *_: None)
        with pytest.raises(Killed):
            lab.run(sweep(rounds=rounds), Deadly(0), [ready("h1")])
    assert lab.rows() == []
    return str(lab.store.campaigns()["campaign_id"].to_pylist()[-1])


def listening() -> list[str]:
    """Addresses at which this process lets others connect, as the kernel writes them."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            own.add(str(entry.readlink()))
    tables = [Path("/proc/self/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    sockets = [line.split() for table in tables for line in table]
    return [found[1] for found in sockets if found[3] == "0A" and f"socket:[{found[9]}]" in own]


def test_neither_a_driver_nor_a_host_opens_a_port_for_rows(lab: Lab) -> None:
    before, seen = listening(), []
    lab.run(sweep(rounds=1), Kept(), [ready("h1"), ready("h2")], lambda _progress: seen.append(listening()))
    assert len(seen) > 4
    assert seen == [before] * len(seen)
    with socket.create_server(("127.0.0.1", 0)):
        assert len(listening()) == len(before) + 1, "so that this test sees what it says"


def test_what_a_killed_driver_had_not_stored_is_stored_once_and_not_measured_again(lab: Lab) -> None:
    killed(lab)
    [directory] = directories(lab)
    assert read_origin((directory / "origin.json").read_bytes()).origin.context.host == "h1"
    again = Kept()
    lab.run(sweep(rounds=1), again, [ready("h1")])
    assert all("\n" not in notice.text for notice in lab.told if isinstance(notice, Notice))
    assert again.submitted == []
    assert lab.rows() == [("h1", "ok", 1)] * 2
    assert directories(lab) == []
    [row, _] = lab.store.trials().to_pylist()
    assert row["system_id"] in lab.store.systems()["system_id"].to_pylist()
    assert row["environment_id"] in lab.store.environments()["environment_id"].to_pylist()


def test_a_row_from_a_leftover_is_the_row_that_the_stream_gives(lab: Lab, tmp_path: Path) -> None:
    def keep(progress: object) -> None:
        if isinstance(progress, TrialRecorded) and not kept:
            kept.extend(shutil.copytree(one, tmp_path / "kept" / one.name) for one in directories(lab))

    kept: list[Path] = []
    campaign = lab.run(sweep(rounds=1), Kept(), [ready("h1")], keep)
    shutil.copytree(tmp_path / "kept", lab.files.campaigns / campaign, dirs_exist_ok=True)
    lab.run(sweep(rounds=1), Kept(), [ready("h1")])
    assert "say different things" not in lab.notices()
    assert not list((lab.files.campaigns / campaign).glob("*/records.jsonl")), "it is acknowledged"


def test_what_another_campaign_left_is_stored_too_and_what_is_of_another_store_is_not(lab: Lab, tmp_path: Path) -> None:
    left = killed(lab)
    [directory] = directories(lab)
    foreign = directory.with_name("foreign")
    shutil.copytree(directory, foreign)
    document = json.loads((foreign / "origin.json").read_text())
    (foreign / "origin.json").write_text(json.dumps({**document, "store_id": "another"}))
    damaged = directory.with_name("damaged")
    shutil.copytree(directory, damaged)
    (damaged / "origin.json").write_text("{")
    new = lab.run(sweep("any", rounds=2), Kept(), [ready("h1")])
    assert new != left
    assert len(lab.store.trials(campaign_id=left)) == 2
    accounts = {row["campaign_id"]: (row["rows"], row["trials_ok"]) for row in lab.store.campaigns().to_pylist()}
    assert accounts == {left: (2, 2), new: (4, 4)}
    assert (foreign / "records.jsonl").exists()
    assert (damaged / "records.jsonl").exists()
    assert "origin.json is damaged; the records beside it stay" in lab.notices()


def plain(line: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(line)
    del document["crc32"]
    return document


def test_a_record_that_gives_no_row_is_the_problem_of_its_task_and_stays_on_its_host(
    lab: Lab, monkeypatch: Patch
) -> None:
    run, spoilt = FakeExecutor.run, []

    def spoils_the_first(self: FakeExecutor, task: Task, directory: Path, stop: threading.Event) -> TaskOutcome:
        outcome = run(self, task, directory, stop)
        if not spoilt:
            path = Path(TaskFiles(str(directory)).records)
            lines = path.read_bytes().splitlines(keepends=True)
            lines[2] = line_of(json.dumps({**plain(lines[2]), "exit_code": 2**40}))
            path.write_bytes(b"".join(lines))
            spoilt.append(directory)
        return outcome

    monkeypatch.setattr(FakeExecutor, "run", spoils_the_first)
    # So that the driver sees what was spoilt, and not what it was before
    monkeypatch.setattr(host_task, "LOOK_S", 1.0)
    lab.run(sweep(rounds=1), Kept(), [ready("h1")])
    assert lab.rows() == [("h1", "infrastructure_error", 1), ("h1", "ok", 1), ("h1", "ok", 2)]
    assert "line 3 of its records cannot be read: exit_code: 1099511627776 is not from" in lab.notices()
    assert (spoilt[0] / "records.refused.jsonl").exists()


def test_a_row_is_on_the_disk_before_its_record_is_told(lab: Lab) -> None:
    def look(progress: object) -> None:
        if isinstance(progress, TrialRecorded):
            assert progress.trial.trial_id in lab.store.trials(["trial_id"])["trial_id"].to_pylist()

    lab.run(sweep(rounds=2), Kept(), [ready("h1")], look)
    assert lab.rows() == [("h1", "ok", 1)] * 4


def test_a_store_that_fails_leaves_the_records_on_their_host(lab: Lab, monkeypatch: Patch) -> None:
    def fails(self: Writer, batches: object) -> None:
        raise StoreError("cannot write the journal")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append_batches", fails)
        with pytest.raises(StoreError, match="cannot write the journal"):
            lab.run(sweep(rounds=1), Kept(), [ready("h1")])
    assert [(path / "records.jsonl").exists() for path in directories(lab)] == [True]
    again = Kept()
    lab.run(sweep(rounds=1), again, [ready("h1")])
    assert again.submitted == []
    assert lab.rows() == [("h1", "ok", 1)] * 2


def test_a_call_of_the_engine_that_is_slow_is_no_silence(lab: Lab, monkeypatch: Patch) -> None:
    run = FakeExecutor.run

    def slow(self: FakeExecutor, task: Task, directory: Path, stop: threading.Event) -> TaskOutcome:
        threading.Event().wait(2.5)  # FAULTS take a host for lost after one second
        return run(self, task, directory, stop)

    monkeypatch.setattr(FakeExecutor, "run", slow)
    lab.run(sweep(rounds=1), Kept(), [ready("h1")])
    assert lab.rows() == [("h1", "ok", 1)] * 2
    assert lab.notices() == ""


@pytest.fixture
def request_(lab: Lab) -> TaskRequest:
    scheduler = Kept()
    lab.run(sweep(rounds=1), scheduler, [ready("h1")])
    return replace(scheduler.submitted[0], code=INSTALLED)


def events_of(request: TaskRequest) -> list[TaskEvent]:
    return list(run_on_host(request))


def test_a_host_says_what_it_is_then_what_is_recorded_then_how_it_ended(request_: TaskRequest) -> None:
    first, *pieces, last = events_of(request_)
    assert isinstance(first, HostObserved)
    assert isinstance(last, TaskEnded)
    data = b""
    for number, piece in enumerate(pieces):
        assert isinstance(piece, RecordPiece)
        assert (piece.sequence, piece.offset) == (number, len(data))
        data += piece.data
    assert data == (request_.directory / "records.jsonl").read_bytes()
    assert (last.size, last.problem) == (len(data), None)


def test_closing_the_stream_ends_the_task(request_: TaskRequest, monkeypatch: Patch) -> None:
    stopped = threading.Event()

    def until_stopped(self: FakeExecutor, task: Task, directory: Path, stop: threading.Event) -> TaskOutcome:
        assert stop.wait(20)
        stopped.set()
        return TaskOutcome(None, None, "ended", "")

    monkeypatch.setattr(FakeExecutor, "run", until_stopped)
    running = run_on_host(request_)
    next(running)
    running.close()
    assert stopped.is_set()


@pytest.fixture
def stored(request_: TaskRequest) -> tuple[Path, int]:
    """A task directory of which everything is stored, and the size of its records."""
    end = events_of(request_)[-1]
    assert isinstance(end, TaskEnded)
    assert end.size is not None
    (request_.directory / "supervisor.log").write_text("log")
    return request_.directory, end.size


def test_an_acknowledged_directory_is_gone_and_a_second_acknowledgement_does_no_harm(stored: tuple[Path, int]) -> None:
    directory, size = stored
    for _ in range(2):
        assert list(acknowledge([Acknowledgement(directory, size, Disposal.REMOVE)])) == []
        assert not directory.exists()


def test_a_task_that_failed_keeps_its_logs(stored: tuple[Path, int]) -> None:
    directory, size = stored
    for _ in range(2):
        assert list(acknowledge([Acknowledgement(directory, size, Disposal.KEEP_LOGS)])) == []
    assert (directory / "supervisor.log").exists()
    assert (directory / "records.stored.jsonl").stat().st_size == size
    assert not (directory / "records.jsonl").exists()
    assert list(remove_directories([directory.parent])) == []
    assert not directory.exists()


def grown(directory: Path) -> Callable[[], None]:
    with (directory / "records.jsonl").open("ab") as records:
        records.write(b"x")
    return lambda: None


def locked(directory: Path) -> Callable[[], None]:
    """Another process works there: a lock of this one would be no obstacle to itself."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        os.write(write, b"1")
        threading.Event().wait(60)
        os._exit(0)
    os.read(read, 1)

    def end() -> None:
        os.kill(child, 9)
        os.waitpid(child, 0)

    return end


@pytest.mark.parametrize("obstacle", [grown, locked])
def test_an_acknowledgement_of_something_else_changes_nothing(
    stored: tuple[Path, int], obstacle: Callable[[Path], Callable[[], None]]
) -> None:
    directory, size = stored
    end = obstacle(directory)
    try:
        [problem] = acknowledge([Acknowledgement(directory, size, Disposal.REMOVE)])
        assert "stays" in problem
        assert (directory / "records.jsonl").exists()
    finally:
        end()


@pytest.mark.parametrize("name", ["records.jsonl", "records.refused.jsonl"])
def test_nothing_that_is_not_acknowledged_is_cleared(stored: tuple[Path, int], name: str) -> None:
    directory, _ = stored
    (directory / "records.jsonl").rename(directory / name)
    [problem] = remove_directories([directory.parent])
    assert "has records that are not stored" in problem
    assert (directory / name).exists()


def test_a_full_disk_is_waited_for_and_an_interrupt_leaves_what_waits_to_the_next_run(
    small_disk: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("orchestrator.store.ingest.RETRY_S", 0.1)
    lab, wanted, ballast = Lab(tmp_path, small_disk / "results"), sweep(rounds=15), small_disk / "ballast"
    slow = [ready("h1", settings=FakeSettings(0.05))]

    def is_full(progress: object) -> bool:
        return isinstance(progress, Notice) and "is full: waiting for room" in progress.text

    def filling(then: Callable[[], object]) -> Callable[[object], None]:
        def follow(progress: object) -> None:
            if isinstance(progress, TrialRecorded) and len(lab.recorded()) == 3:
                fill(small_disk)
            if is_full(progress):
                then()

        return follow

    with pytest.raises(KeyboardInterrupt):
        lab.run(wanted, Kept(), slow, filling(lambda: os.kill(os.getpid(), signal.SIGINT)))
    before = set(lab.store.trials(["trial_id"])["trial_id"].to_pylist())
    left = [path for path in directories(lab) if (path / "records.jsonl").exists()]
    assert left, "what waited is on its host"
    ballast.unlink()

    lab.run(wanted, Kept(), slow, filling(ballast.unlink))
    told = [progress.trial.trial_id for progress in lab.recorded()]
    assert len(told) == len(set(told)) < 30 - len(before), "what waited was stored, and not measured again"
    assert before.isdisjoint(told)
    assert [is_full(progress) for progress in lab.told].count(True) == 1
    assert lab.rows() == [("h1", "ok", 1)] * 30
    assert directories(lab) == []
