"""The way of one trial: a sweep of one trial, all of whose processes are followed, calls `STATIONS` in this order."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

from orchestrator.errors import ExitCode
from tests.conftest import PROJECT

pytestmark = pytest.mark.cluster

SWEEP = """
version: 1
name: walked
environments: [cpu]
workloads: [{name: tiny-bert, batch: 1}]
backends: [eager]
rounds: 1
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, turn_ms: 20, cycles: 3, min_cycles: 2}
"""

STATIONS = """
# On the driver, before anything is changed
orchestrator/cli/sweep.py run_command
orchestrator/config/sweep.py load_sweep
orchestrator/config/inventory_file.py load_inventory
orchestrator/hosts/fleet.py open_hosts
orchestrator/campaign/run.py run_sweep
orchestrator/campaign/run.py look
orchestrator/hosts/fleet.py Hosts.look
orchestrator/hosts/access.py HostAccess.facts
orchestrator/hosts/provision.py unavailable_environments
orchestrator/hosts/pins.py planning_host
orchestrator/planning/expansion.py plan
orchestrator/planning/expansion.py specifications
orchestrator/planning/model.py trial_key
# Everything is made ready
orchestrator/campaign/provision.py provision
orchestrator/hosts/provision.py make_environments
orchestrator/environments/virtualenv.py ensure_virtualenv
orchestrator/campaign/resume.py choose_campaign
orchestrator/campaign/run.py drive_order
orchestrator/campaign/driver/campaign_run.py run_campaign
orchestrator/campaign/driver/campaign_run.py CampaignRun.all
orchestrator/scheduling/ray.py Scheduler.start
orchestrator/campaign/driver/driver.py Driver.run
orchestrator/campaign/driver/requests.py Requests.of
orchestrator/scheduling/ray.py Scheduler.submit
# On the host, in Ray's worker
orchestrator/scheduling/host_task.py run_on_host
orchestrator/execution/task_directory.py stage
orchestrator/execution/choice.py create_executor
orchestrator/execution/process.py ProcessExecutor.run
# In the environment, the supervisor and its children
runners/supervision/start.py run_directory
runners/supervision/preload.py import_all
runners/supervision/supervisor.py Supervisor.run
runners/supervision/guarding.py Guarding.before
runners/supervision/session.py SessionRun.run
runners/supervision/child.py live
runners/protocol/measure.py measure
runners/backends/eager.py Eager.build
runners/protocol/verify.py check
runners/protocol/timing.py warm_up
runners/protocol/timing.py time_turns
runners/supervision/guarding.py Guarding.after
runners/supervision/supervisor.py Supervisor._write
# Back on the driver
orchestrator/execution/records.py read_pieces
orchestrator/execution/records.py RecordReader.feed
orchestrator/campaign/driver/record_intake.py RecordIntake._record
orchestrator/store/rows.py RowBuilder.rows
orchestrator/store/rows.py trial_row
orchestrator/store/ingest.py Ingest.submit
orchestrator/store/validation.py fitting
orchestrator/store/storage/journal.py Segment.append
orchestrator/scheduling/host_calls.py acknowledge
orchestrator/store/storage/seal.py seal_segment
orchestrator/analysis/summary.py summarise
orchestrator/report/terminal.py render
"""

FOLLOWING = '''
"""Writes down which functions are called, at most every AGAIN_NS of most; Python 3.8, as the runners."""

import os
import sys
import threading
import time

AGAIN_NS = 20_000_000
COUNTED = "load_inventory", "collect"
LISTENED = os.sep + "orchestrator" + os.sep, os.sep + "runners" + os.sep


def follow(directory):
    last_ns, own = {}, {"pid": 0}

    def hear(frame, event, _):
        code = frame.f_code
        if event != "call" or not any(part in code.co_filename for part in LISTENED):
            return
        now_ns = time.monotonic_ns()
        if code.co_name not in COUNTED and now_ns - last_ns.get(code, -AGAIN_NS) < AGAIN_NS:
            return
        last_ns[code] = now_ns
        if own["pid"] != os.getpid():
            own["pid"] = os.getpid()
            own["file"] = open(os.path.join(directory, str(os.getpid())), "a", buffering=1)
        own["file"].write("%d %s %s\\n" % (now_ns, code.co_filename, getattr(code, "co_qualname", code.co_name)))

    if sys.getprofile() is None:
        threading.setprofile(hear)
        sys.setprofile(hear)
'''


class Station(NamedTuple):
    """A function on the way of a trial."""

    path: str
    name: str


def stations() -> list[Station]:
    return [Station(*line.split()) for line in STATIONS.splitlines() if line and not line.startswith("#")]


def returns(folders: Sequence[PurePosixPath]) -> int:
    """How often a folder is entered again that was left."""
    entered = [folder for folder, before in zip(folders, [None, *folders], strict=False) if folder != before]
    return len(entered) - len(set(entered))


def test_the_way_is_short() -> None:
    way = stations()
    assert 40 <= len(way) <= 60
    assert len({station.path for station in way}) <= 45
    assert returns([PurePosixPath(station.path).parent for station in way]) <= 12


def called(directory: Path) -> list[tuple[int, Station]]:
    """What was called, in the order of time; all processes of a machine have one monotonic clock."""
    calls = []
    for path in directory.iterdir():
        for line in path.read_text().splitlines():
            at_ns, file, name = line.split(" ", 2)
            # the last part that names a package, because copies of the runners lie below directories of ours
            place = max(file.rfind("/orchestrator/"), file.rfind("/runners/"))
            calls.append((int(at_ns), Station(file[place + 1 :], name)))
    return sorted(calls)


def test_a_trial_passes_the_stations_in_their_order(tmp_path: Path, cpu_python: Path) -> None:
    assert cpu_python.exists()
    code, seen = tmp_path / "code", tmp_path / "seen"
    shutil.copytree(PROJECT / "runners", code / "runners", ignore=shutil.ignore_patterns("__pycache__"))
    seen.mkdir()
    begin = f"from runners import following\nfollowing.follow({str(seen)!r})\n"
    (code / "runners" / "following.py").write_text(FOLLOWING)
    # Ours and Ray's workers inherit the path, and with it this; the runner inherits nothing, but has the code.
    (code / "sitecustomize.py").write_text(begin)
    with (code / "runners" / "__init__.py").open("a") as package:
        package.write(begin)
    sweep = tmp_path / "walked.yaml"
    sweep.write_text(SWEEP)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "sweep", "run", str(sweep), "--results", str(tmp_path / "results")],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(code), "DOCKER_HOST": "unix:///nonexistent/docker.sock"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    calls = called(seen)
    counts = Counter(tuple(station) for _, station in calls)
    assert counts["orchestrator/config/inventory_file.py", "load_inventory"] == 1
    # the driver, the worker of Ray and the supervisor look at the machine, each once
    assert counts["runners/system/fingerprint.py", "collect"] == 3
    at_ns = 0
    for number, station in enumerate(stations(), 1):
        times = [time_ns for time_ns, other in calls if other == station]
        later = [time_ns for time_ns in times if time_ns >= at_ns]
        assert later, f"station {number}, {station}, was called {len(times)} times, but never after the one before"
        at_ns = later[0]
