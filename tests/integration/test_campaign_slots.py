"""A campaign on a host whose GPUs have slots of their own, through a real Ray: what runs at once, and what rows tell."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

DRIVER = textwrap.dedent(
    """
    import json, sys
    from pathlib import Path
    from orchestrator.campaign import CampaignOrder, Notice, ProjectFiles, ReadyHost, ResumePolicy, choose_campaign
    from orchestrator.campaign import run_campaign
    from orchestrator.execution import FakeSettings
    from orchestrator.config import Exclusive, Sweep
    from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost, make_slots
    from orchestrator.scheduling.ray import RayScheduler
    from orchestrator.store import Store
    from runners.system import GpuPlace, NumaNode, Topology

    directory, device, exclusive = Path(sys.argv[1]), sys.argv[2], Exclusive(sys.argv[3])
    pin = EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "0" * 64)
    gpus = (GpuPlace("GPU-a", None, 0), GpuPlace("GPU-b", None, 1))
    topology = Topology(tuple(map(str, range(8))), (NumaNode(0, "0-3"), NumaNode(1, "4-7")), gpus)
    cores = tuple(range(8))
    slots = make_slots(cores, topology, gpus, exclusive)
    host = PlanningHost("h1", {}, cores, {"cpu": pin}, topology=topology, slots=slots, exclusive=exclusive)
    sweep = Sweep.model_validate({
        "version": 1, "name": "s", "environments": "cpu", "device": device, "rounds": 3, "threads": ("all",),
        "workloads": ({"name": "bert-base", "batch": (1, 2, 3, 4)},), "backends": ("eager", "torchscript"),
    })
    store = Store.open(directory / "results")
    continuation = choose_campaign(sweep, [host], store, ResumePolicy.NEVER)
    ready = ReadyHost(host, {"cpu": FakeSettings(float(sys.argv[4]))})
    order = CampaignOrder(continuation, [ready], "s", "sweep", "inventory", "0", None)
    told = []
    run_campaign(order, RayScheduler(), store, ProjectFiles(directory), lambda one: told.append(one))
    notices = [one.text for one in told if isinstance(one, Notice)]
    columns = ["status", "round", "slot", "gpu_uuid", "exclusive", "threads", "started_at"]
    rows = store.trials(columns).to_pylist()
    print(json.dumps([notices, [{**row, "started_at": row["started_at"].timestamp()} for row in rows]]))
    """
)

Row = dict[str, Any]


def run(directory: Path, device: str, exclusive: str) -> dict[int, list[Row]]:
    """The rows of a campaign of three rounds, by round."""
    # Ray starts one worker after the other: those of two GPUs at once have to meet
    pace_s = 1.0 if (device, exclusive) == ("cuda", "gpu") else 0.2
    command = [sys.executable, "-c", DRIVER, str(directory), device, exclusive, str(pace_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    notices, rows = json.loads(done.stdout.splitlines()[-1])
    assert notices == []
    assert {row["status"] for row in rows} == {"ok"}
    by_round = {number: [row for row in rows if row["round"] == number] for number in (1, 2, 3)}
    assert [len(some) for some in by_round.values()] == [8, 8, 8]
    return by_round


def span(rows: list[Row]) -> tuple[float, float]:
    started = [row["started_at"] for row in rows]
    return min(started), max(started)


def told(rows: list[Row]) -> set[tuple[int, str | None, str, int]]:
    return {(row["slot"], row["gpu_uuid"], row["exclusive"], row["threads"]) for row in rows}


def test_rounds_take_turns_on_gpus_that_work_at_once(tmp_path: Path) -> None:
    rounds = run(tmp_path, "cuda", "gpu")
    assert told(rounds[1]) == told(rounds[3]) == {(0, "GPU-a", "gpu", 4)}
    assert told(rounds[2]) == {(1, "GPU-b", "gpu", 4)}
    (one, one_end), (two, two_end), (three, _) = (span(rounds[number]) for number in (1, 2, 3))
    assert max(one, two) < min(one_end, two_end), "both GPUs work at the same time"
    assert one_end < three, "a GPU runs one task at a time"


@pytest.mark.parametrize(
    ("device", "exclusive", "gpu"),
    [
        pytest.param("cpu", "gpu", None, id="processors"),
        pytest.param("cuda", "host", "GPU-a", id="host", marks=pytest.mark.long),
    ],
)
def test_else_a_host_runs_one_task_at_a_time(tmp_path: Path, device: str, exclusive: str, gpu: str | None) -> None:
    rounds = run(tmp_path, device, exclusive)
    assert told([row for rows in rounds.values() for row in rows]) == {(0, gpu, "host", 8)}
    spans = [span(rounds[number]) for number in (1, 2, 3)]
    assert spans[0][1] < spans[1][0] <= spans[1][1] < spans[2][0]
