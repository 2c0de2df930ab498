"""The scheduler on a real Ray cluster of this machine, in a process of its own, as a campaign has it."""

import itertools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

DRIVER = textwrap.dedent(
    """
    import json, os, sys, time
    from pathlib import Path
    from orchestrator.execution import FakeSettings, RecordReader
    from orchestrator.scheduling import RecordPiece, SchedulingHost, TaskEnded, TaskRequest, read_leftovers
    from orchestrator.scheduling import LeftoverPiece, Leftovers
    from orchestrator.scheduling.ray import Scheduler
    from runners.contract import CONTRACT_VERSION, BackendSpec, Protocol, Task, Trial, TrialSpec, WorkloadSpec

    directory = Path(sys.argv[1])
    spec = TrialSpec(WorkloadSpec("synthetic-null", 1), BackendSpec("python", {}), "float32", "cpu", 1, 0, Protocol())
    scheduler = Scheduler()
    told = []

    def request(name, settings, trials):
        trials = tuple(Trial(f"{name}{i}", "k", i + 1, 0, 0, 1, 60, spec) for i in range(trials))
        task = Task(CONTRACT_VERSION, "c", name, "cpu", trials)
        return TaskRequest("h1", task, settings, directory / "campaigns" / "c" / name, "store", {})

    try:
        scheduler.start([SchedulingHost("h1", {"site": "test"}, slots=2)])
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
        told.append(["token", os.environ["RAY_AUTH_MODE"], oct(token.stat().st_mode & 0o777)])
        scheduler.submit(request("calm0", FakeSettings(1.0), 3))
        # 20 records of 1.2 MB each: far more than is ahead of the driver at any time
        scheduler.submit(request("flood", FakeSettings(0.0, 40_000), 20))
        readers = {name: RecordReader() for name in ("calm0", "calm1", "flood")}
        running = {"calm0", "flood"}
        while running:
            for event in scheduler.take():
                # a sign of life comes at any time, also before a host on a busy machine says what it is
                if isinstance(event, RecordPiece) and not event.data:
                    continue
                lines = []
                if isinstance(event, RecordPiece):
                    assert event.offset == readers[event.task_id].size
                    lines = [type(read.line).__name__ for read in readers[event.task_id].feed(event.data)]
                if isinstance(event, TaskEnded):
                    assert (event.size, event.problem) == (readers[event.task_id].size, None)
                    running.remove(event.task_id)
                    if event.task_id == "calm0":
                        scheduler.submit(request("calm1", FakeSettings(1.0), 3))
                        running.add("calm1")
                told.append([type(event).__name__, event.task_id, time.monotonic(), lines])
        stream = scheduler.stream(read_leftovers, "h1", Leftovers(directory / "campaigns", "store"))
        pieces = []
        while not stream.is_over:
            pieces += stream.take()
        sizes = [len(piece.data) for piece in pieces if isinstance(piece, LeftoverPiece)]
        told.append(["leftovers", sum(sizes), max(sizes), sum(reader.size for reader in readers.values())])
        spilled = [str(path) for path in Path("/tmp").glob(f"taxmeter-ray-{os.getpid()}-*/**/*spilled*/*")]
        told.append(["spilled", spilled])
    finally:
        scheduler.stop()
    told.append(["left", [str(p) for p in Path("/tmp").glob(f"taxmeter-ray-{os.getpid()}-*")]])
    print(json.dumps(told))
    """
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    directory = tmp_path_factory.mktemp("ray")
    script = directory / "driver.py"
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, str(script), str(directory)], capture_output=True, text=True, timeout=180, env=environment
    )
    assert done.returncode == 0, done.stderr
    whole: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return whole


def of(told: list[list[Any]], task: str) -> list[list[Any]]:
    return [entry for entry in told if entry[1] == task]


def test_the_token_is_on_and_private_and_nothing_of_the_cluster_is_left(told: list[list[Any]]) -> None:
    assert told[0] == ["token", "token", "0o600"]
    assert told[-1] == ["left", []]


def test_tasks_run_also_if_they_are_submitted_while_others_do(told: list[list[Any]]) -> None:
    names = [entry[1] for entry in told if str(entry[1]).startswith("calm")]
    assert names == sorted(names)
    for task in ("calm0", "calm1", "flood"):
        kinds = [entry[0] for entry in of(told, task)]
        assert (kinds[0], kinds[-1]) == ("HostObserved", "TaskEnded")
        assert set(kinds[1:-1]) == {"RecordPiece"}
    lines = [line for entry in of(told, "calm0") for line in entry[3]]
    assert lines == ["Environment", *["Begin", "TrialRecord"] * 3, "End"]


def test_records_come_while_the_task_runs(told: list[list[Any]]) -> None:
    times = [entry[2] for entry in of(told, "calm0") if "TrialRecord" in entry[3]]
    # Three records a second apart: had they come together at the end, there would be no such distance.
    assert times[-1] - times[0] > 1.0


def test_slots_work_side_by_side_and_one_that_floods_hides_no_other(told: list[list[Any]]) -> None:
    assert sum(entry[3].count("TrialRecord") for entry in of(told, "flood")) == 20
    flood, calm = of(told, "flood"), of(told, "calm0")
    first, last = flood[0][2], flood[-1][2]
    assert first < of(told, "calm1")[-1][2], "the slots of a host work side by side"
    beside = [entry[2] for entry in calm if first < entry[2] < last]
    gaps = [after - before for before, after in itertools.pairwise(beside)]
    assert max(gaps, default=0.0) < 3.0, gaps


def test_what_is_left_on_a_host_is_streamed_in_bounded_pieces_and_nothing_is_spilled(told: list[list[Any]]) -> None:
    [[_, size, longest, recorded]] = [entry for entry in told if entry[0] == "leftovers"]
    assert size == recorded
    assert longest == 65536
    assert ["spilled", []] in told
