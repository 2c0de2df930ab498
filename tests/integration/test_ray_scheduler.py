"""The scheduler on a real Ray cluster of this machine, in a process of its own, as a campaign has it."""

import json
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.cluster

DRIVER = textwrap.dedent(
    """
    import json, os, sys, time
    from pathlib import Path
    from orchestrator.delivery import Committer, Destination, Origin, Server
    from orchestrator.execution import FakeSettings
    from orchestrator.planning import EnvironmentPin, Isolation
    from orchestrator.scheduling import LineReceived, SchedulingHost, TaskEnded, TaskRequest, Tick
    from orchestrator.scheduling.ray import RayScheduler
    from orchestrator.store import RowContext, Store
    from runners.contract import CONTRACT_VERSION, BackendSpec, Protocol, Task, Trial, TrialSpec, WorkloadSpec

    directory = Path(sys.argv[1])
    spec = TrialSpec(WorkloadSpec("synthetic-null", 1), BackendSpec("python", {}), "float32", "cpu", 1, 0, Protocol())
    pin = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "0" * 64)
    context = RowContext("c", None, "h1", "process", None, "cpu", None, None, None, None, None, {}, None, None, {})
    store = Store.open(directory / "results")
    writer = store.writer()
    committer = Committer(store, writer, print)
    server = Server(committer, b"token", print)
    destination = Destination("127.0.0.1", server.port, b"token", directory / "spool")
    scheduler = RayScheduler()
    told = []
    try:
        scheduler.start([SchedulingHost("h1", {"site": "test"})])
        told.append(["token", os.environ["RAY_AUTH_MODE"], oct(os.stat(os.environ["RAY_AUTH_TOKEN_PATH"]).st_mode & 0o777)])
        for number in range(2):
            trials = tuple(Trial(f"t{number}{i}", "k", 1, i, 0, 1, 60, spec) for i in range(3))
            task = Task(CONTRACT_VERSION, "c", f"task{number}", "cpu", trials)
            origin = Origin(context, pin)
            scheduler.submit(
                TaskRequest("h1", task, FakeSettings(1.0), directory / f"task{number}", origin, destination)
            )
        store.trials(["trial_id"])  # the first time takes longer
        for event in scheduler.events():
            if isinstance(event, Tick):
                continue
            name = event.task.task_id if isinstance(event, TaskEnded) else event.task_id
            rows = len(store.trials(["trial_id"]))
            told.append([type(event).__name__, name, time.monotonic(), rows])
    finally:
        scheduler.stop()
        server.close()
        committer.close()
    told.append(["left", [str(p) for p in Path("/tmp").glob(f"taxmeter-ray-{os.getpid()}-*")]])
    print(json.dumps(told))
    """
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[list[object]]:
    directory = tmp_path_factory.mktemp("ray")
    script = directory / "driver.py"
    script.write_text(DRIVER)
    done = subprocess.run([sys.executable, str(script), str(directory)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    whole: list[list[object]] = json.loads(done.stdout.splitlines()[-1])
    return whole


def test_the_token_is_on_and_private(told: list[list[object]]) -> None:
    assert told[0] == ["token", "token", "0o600"]


def test_tasks_of_a_host_run_one_after_the_other(told: list[list[object]]) -> None:
    events = told[1:-1]
    names = [entry[1] for entry in events]
    assert names == sorted(names)
    assert [entry[0] for entry in events].count("TaskEnded") == 2
    assert [entry[0] for entry in events if entry[1] == "task0"] == ["HostObserved", *["LineReceived"] * 8, "TaskEnded"]


def test_records_come_while_the_task_runs(told: list[list[object]]) -> None:
    times = [float(str(entry[2])) for entry in told[1:-1] if entry[1] == "task0"]
    # Three records a second apart: had they come together at the end, there would be no such distance.
    assert times[-1] - times[1] > 1.0


def test_the_row_of_a_trial_is_stored_before_its_record_is_heard_of(told: list[list[object]]) -> None:
    # observed; environment; begin and record of each of three trials; end; ended
    rows = [int(str(entry[3])) for entry in told[1:-1]]
    assert [count >= least for count, least in zip(rows[:10], (0, 0, 0, 1, 1, 2, 2, 3, 3, 3), strict=True)] == [
        True
    ] * 10
    assert rows[-1] == 6


def test_nothing_of_the_cluster_is_left(told: list[list[object]]) -> None:
    assert told[-1] == ["left", []]
