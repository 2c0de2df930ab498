"""Fixtures that several kinds of tests share."""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

# Before the import of what reads it: tests neither wait for a sweep of this machine nor keep one from running.
os.environ["TAXMETER_LOCKS"] = tempfile.mkdtemp(prefix="taxmeter-tests-locks-")

import pytest
from hypothesis import HealthCheck, settings

from orchestrator.environments import BuiltImage, Catalogue, connect, engine_problem, ensure_image, ensure_virtualenv
from runners.contract import CONTRACT_VERSION, BackendSpec, Protocol, Task, Trial, TrialSpec, WorkloadSpec

# A job in the background is started with interrupts ignored, and what it starts inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is tried is the same for the same code, so that a failure is of the change before it; and a machine that stalls
# in the middle of an example is no failure.
settings.register_profile(
    "taxmeter", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("taxmeter")

# What is printed here has the width and the looks of a pipe, whatever the shell of whoever runs the tests has set.
for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)

PROJECT = Path(__file__).resolve().parent.parent
NO_NNPACK = "ignore:Could not initialize NNPACK"
"""What torch warns of on processors that it does not know, as an option of `python -W`."""
QUICK = Protocol(
    warmup_min_calls=1, warmup_min_ms=1, warmup_max_ms=50, turn_ms=1, cycles=3, min_cycles=2, sync_budget_ms=20,
    sync_min_samples=3, pipelined_budget_ms=20, pipelined_min_samples=2, pipelined_block_ms=1, floor_budget_ms=20,
)  # fmt: skip

Captured = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
MakeTrial = Callable[..., Trial]
MakeTask = Callable[..., Task]


NEEDS: Final = {
    "engine": "engine",
    "cpu_image": "engine",
    "cpu_2022_image": "engine",
    "cpu_python": "environment",
    "swift": "s3",
    "object_service": "s3",
    "running": "browser",
}
"""By fixture: what a test needs that uses it. `running` is a browser."""
BUILDING_S: Final = 900
"""Seconds for a test and its fixtures, where these may build an image or install an environment of gigabytes."""
BUILDS: Final = ("engine", "lab", "cluster", "environment")
OF_THE_MACHINE: Final = re.compile(r"mark\.(engine|lab|cluster)|\b(engine|cpu_image|cpu_2022_image|object_service): ")
"""In modules whose tests look at all containers, processes or ports of the machine: one worker runs them."""


def pytest_unconfigure() -> None:
    """Leaves no lock directory behind; a process that a test forked does not come here."""
    shutil.rmtree(os.environ["TAXMETER_LOCKS"], ignore_errors=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks a test by the fixtures that it uses; leaves the long ones to `make test-long`."""
    for name in {NEEDS[used] for used in getattr(item, "fixturenames", ()) if used in NEEDS}:
        item.add_marker(name)
    if not item.get_closest_marker("timeout") and any(item.get_closest_marker(name) for name in BUILDS):
        item.add_marker(pytest.mark.timeout(BUILDING_S))
    if item.get_closest_marker("long") and os.environ.get("TAXMETER_LONG") != "1":
        item.add_marker(pytest.mark.skip(reason="a long test; `make test-long` runs it"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives modules to workers: what a module makes is made once, and what looks at the machine stays together."""
    from xdist.scheduler import LoadScopeScheduling

    class ModuleScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return "machine" if looks_at_the_machine(config.rootpath / module) else module

    return ModuleScheduling(config, log)


@cache
def looks_at_the_machine(module: Path) -> bool:
    """Whether a module has tests that look at all containers, processes or ports of the machine."""
    return OF_THE_MACHINE.search(module.read_text(encoding="utf-8")) is not None


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the project."""
    return PROJECT


@pytest.fixture(scope="session")
def engine() -> None:
    """Skips where no Docker engine answers, and fails where one is required."""
    problem = engine_problem()
    if problem is None:
        return
    if os.environ.get("TAXMETER_REQUIRE_ENGINE") == "1":
        pytest.fail(f"TAXMETER_REQUIRE_ENGINE=1, but {problem}")
    pytest.skip(problem)


@pytest.fixture(scope="session")
def cpu_image(engine: None) -> BuiltImage:
    """The image of the `cpu` environment, built if the engine does not have it."""
    return image_of("cpu")


@pytest.fixture(scope="session")
def cpu_2022_image(engine: None) -> BuiltImage:
    """The image of the `cpu-2022` environment, built if the engine does not have it."""
    return image_of("cpu-2022")


def image_of(environment: str) -> BuiltImage:
    """The image of an environment of the catalogue, built if the engine does not have it."""
    client = connect()
    try:
        return ensure_image(Catalogue.load(PROJECT / "docker" / "images.yaml").entry(environment), client, print)
    finally:
        client.close()


@pytest.fixture(scope="session")
def cpu_python() -> Path:
    """Python of the `cpu` environment."""
    return python_of("cpu")


def python_of(environment: str) -> Path:
    """Python of an environment of the catalogue, made from its lock if it is not there."""
    entry = Catalogue.load(PROJECT / "docker" / "images.yaml").entry(environment)
    return ensure_virtualenv(entry, PROJECT / ".taxmeter" / "environments", print)


@pytest.fixture
def make_trial() -> MakeTrial:
    """Builds trials of synthetic workloads with short budgets."""

    def make(workload: str = "synthetic-null", trial_id: str | None = None, **changes: object) -> Trial:
        def take(name: str, usual: Any) -> Any:
            return changes.pop(name, usual)

        shape: dict[str, Any] = {key: changes.pop(key) for key in ("sequence_length", "image_size") if key in changes}
        spec = TrialSpec(
            WorkloadSpec(workload, take("batch", 1), **shape, options=take("workload_options", {})),
            BackendSpec(take("backend", "python"), take("options", {})),
            take("dtype", "float32"), take("device", "cpu"), take("threads", 1), 1, take("protocol", QUICK),
        )  # fmt: skip
        fields: dict[str, Any] = {
            "trial_id": trial_id or f"id-{workload}", "trial_key": f"key-{workload}", "round": 1, "order": 0,
            "replicate": 0, "attempt": 1, "timeout_s": 60, "spec": spec,
        }  # fmt: skip
        return Trial(**(fields | changes))

    return make


@pytest.fixture
def make_task() -> MakeTask:
    """Builds a task of trials."""

    def make(*trials: Trial, task_id: str = "task", campaign_id: str = "campaign-of-a-test") -> Task:
        return Task(CONTRACT_VERSION, campaign_id, task_id, "cpu", tuple(trials))

    return make


@pytest.fixture
def in_project(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs a test with the project's root as the current directory."""
    monkeypatch.chdir(PROJECT)
    return PROJECT
