"""Memory, descriptors and threads of driver and workers, over a long campaign of null trials through Ray and the store.

python -m benchmarks.soak --trials 20000 --output docs/measured       writes soak.svg there and prints a table

The campaign is driven by the real driver in a process of its own; its two hosts are nodes of Ray on this machine, on
which an executor makes records up.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from orchestrator.campaign import CampaignRequest, ReadyHost, ResumePolicy, choose_campaign, run_campaign
from orchestrator.config import Sweep
from orchestrator.execution import FakeSettings
from orchestrator.files import ProjectFiles
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost
from orchestrator.report.figures.canvas import drawing, save
from orchestrator.scheduling.nodes import existing_cluster
from orchestrator.scheduling.ray import Scheduler
from orchestrator.store import Store
from tests.ray_nodes import RayNodes

HOSTS: Final = ("h1", "h2")
ROUNDS: Final = 20
PACE_S: Final = 0.03
"""That a host takes for a trial."""
EVERY_S: Final = 5.0
_PIN: Final = EnvironmentPin("cpu", Isolation.PROCESS, "for a benchmark", "0" * 64)
_MIB: Final = 2**20


@dataclass(frozen=True)
class Sample:
    """Processes of one kind, at one moment."""

    at_s: float
    trials: int
    """Stored by then."""
    memory_bytes: int
    descriptors: int
    threads: int


def drive(address: str, directory: Path, trials: int) -> None:
    """Drives the campaign; runs in a process of its own."""
    store = Store.open(directory / "results")
    ready = [
        ReadyHost(
            PlanningHost(name, {}, (0, 1), {"cpu": _PIN}),
            {"cpu": FakeSettings(PACE_S)},
            work_directory=str(directory / name),
        )
        for name in HOSTS
    ]
    batches = tuple(range(1, trials // (len(HOSTS) * ROUNDS) + 1))
    wanted = Sweep.model_validate(
        {
            "version": 1,
            "name": "soak",
            "environments": "cpu",
            "workloads": ({"name": "synthetic-null", "batch": batches},),
            "backends": ("python",),
            "rounds": ROUNDS,
        }
    )
    chosen = choose_campaign(wanted, [host.planning for host in ready], store, ResumePolicy.NEVER)
    order = CampaignRequest(chosen, ready, "soak", "sweep", "inventory", None, sweep=wanted)
    cluster = partial(existing_cluster, address, directory / "token")
    run_campaign(order, Scheduler(cluster), store, ProjectFiles(directory), lambda _: None)


def watch(trials: int, directory: Path) -> dict[str, list[Sample]]:
    """Runs the campaign, and looks at driver and workers until it ends."""
    seen: dict[str, list[Sample]] = {"driver": [], "workers": []}
    store = Store.open(directory / "results")
    with RayNodes(HOSTS, directory) as nodes:
        command = [
            sys.executable,
            "-m",
            "benchmarks.soak",
            "--drive",
            nodes.address,
            str(directory),
            "--trials",
            str(trials),
        ]
        begun_s = time.monotonic()
        with subprocess.Popen(command) as driver:
            while driver.poll() is None:
                at_s = time.monotonic() - begun_s
                stored = len(store.trials(["trial_id"])) if store.layout.description.exists() else 0
                for kind, processes in (("driver", [driver.pid]), ("workers", workers(directory))):
                    seen[kind].append(sample(at_s, stored, processes))
                time.sleep(EVERY_S)
        if driver.returncode != 0:
            raise SystemExit(f"the driver ended with {driver.returncode}")
    rows = store.trials(["trial_id"])["trial_id"].to_pylist()
    if len(rows) != len(set(rows)) or len(rows) != trials:
        raise SystemExit(f"{len(rows)} rows, {len(set(rows))} trials of {trials}")
    return seen


def workers(directory: Path) -> list[int]:
    """Processes of Ray that run tasks, of the nodes whose token lies in a directory."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if _text(entry / "cmdline").startswith("ray::") and str(directory) in _text(entry / "environ")
    ]


def sample(at_s: float, trials: int, processes: Iterable[int]) -> Sample:
    memory = descriptors = threads = 0
    for process in processes:
        status = _text(Path(f"/proc/{process}/status"))
        if "VmRSS:" in status:
            memory += int(status.partition("VmRSS:")[2].split()[0]) * 1024
            threads += int(status.partition("Threads:")[2].split()[0])
            descriptors += sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
    return Sample(at_s, trials, memory, descriptors, threads)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return ""  # it has just ended


def draw(seen: Mapping[str, Sequence[Sample]], directory: Path) -> None:
    """One panel for each quantity, over the trials that are stored."""
    with drawing():
        figure = Figure(figsize=(7.2, 2.2), layout="constrained")
        panels = figure.subplots(1, 3)
        for panel, title in zip(panels, ("memory, MiB", "descriptors", "threads"), strict=True):
            for kind, samples in seen.items():
                values = {
                    "memory, MiB": [found.memory_bytes / _MIB for found in samples],
                    "descriptors": [found.descriptors for found in samples],
                    "threads": [found.threads for found in samples],
                }[title]
                panel.plot([found.trials for found in samples], values, label=kind)
            panel.set_title(title)
            panel.set_xlabel("trials stored")
            panel.set_ylim(bottom=0)
        panels[0].legend()
        save(figure, directory, "soak", ("svg",))


def show(seen: Mapping[str, Sequence[Sample]]) -> None:
    """Ten moments as a table of Markdown."""
    print(
        "| seconds | trials | driver MiB, descriptors, threads | workers MiB, descriptors, threads |\n|---|---|---|---|"
    )
    steps = [number * (len(seen["driver"]) - 1) // 9 for number in range(10)]
    for step in steps:
        both = [seen[kind][step] for kind in ("driver", "workers")]
        cells = [f"{found.memory_bytes / _MIB:.0f}, {found.descriptors}, {found.threads}" for found in both]
        print(f"| {both[0].at_s:.0f} | {both[0].trials:,} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--output", type=Path, default=Path())
    parser.add_argument("--drive", nargs=2, metavar=("ADDRESS", "DIRECTORY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        drive(given.drive[0], Path(given.drive[1]), given.trials)
        return
    with tempfile.TemporaryDirectory(prefix="taxmeter-soak-") as directory:
        seen = watch(given.trials, Path(directory))
    show(seen)
    draw(seen, given.output)


if __name__ == "__main__":
    main()
