"""A container of trials ends by itself: when we are gone, when it is told to, and when nothing in it obeys any more."""

import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from orchestrator.environments import BuiltImage, connect, remove_container
from orchestrator.execution import DockerSettings, stage
from orchestrator.execution.docker import LABEL
from runners.contract import Task, Trial

pytestmark = [pytest.mark.engine]

# Runs a task whose limits are not minutes but seconds.
DRIVER = """
import pickle, sys
from threading import Event, Thread
from orchestrator.execution import create_executor, docker, read_lines
settings, task, directory, limit_s = pickle.loads(sys.stdin.buffer.read())
docker.time_limit_s, docker.LAST_RESORT_S = (lambda _: limit_s), 1
ended = Event()
def tell():
    told = 0
    while not ended.wait(0.05):
        lines = read_lines(directory)
        for line in lines[told:]:
            print(type(line).__name__, flush=True)
        told = len(lines)
Thread(target=tell, daemon=True).start()
outcome = create_executor(settings).run(task, directory, Event())
ended.set()
print(outcome.ended_because, flush=True)
"""
STOP_SUPERVISOR = """
for process in /proc/[0-9]*; do
  case $(tr '\\0' ' ' <$process/cmdline) in "python -m runners"*) kill -STOP ${process#/proc/};; esac
done
"""
ENGINE_S = 20
"""What an engine may take beside the limit to see that a container has ended, on a machine that is busy."""


class Driven:
    """A task in a container, driven by a process that can be killed."""

    def __init__(self, client: DockerClient, driver: "subprocess.Popen[bytes]", task: Task, directory: Path) -> None:
        self._client = client
        self._task = task
        self.driver = driver
        self.log = directory / "supervisor.log"

    def containers(self) -> list[Any]:
        """Its container, or none when it has ended."""
        selected = {"label": f"{LABEL}={self._task.campaign_id}"}
        return list(self._client.containers.list(all=True, filters=selected, ignore_removed=True))

    def container(self) -> Any:
        [found] = self.containers()
        return found

    def ended_after_s(self, limit_s: float) -> float | None:
        """How long its container was still there; null if that was longer than the limit."""
        begun = time.monotonic()
        while time.monotonic() < begun + limit_s:
            if not self.containers():
                return time.monotonic() - begun
            time.sleep(0.1)
        return None


@pytest.fixture
def drive(
    cpu_image: BuiltImage, make_trial: Callable[..., Trial], make_task: Callable[..., Task], tmp_path: Path
) -> Iterator[Callable[[int], Driven]]:
    """Starts a task of many trials with a time limit, and returns when one of them runs."""
    begun: list[Driven] = []
    with closing(connect()) as client:

        def start(limit_s: int) -> Driven:
            settings = DockerSettings(cpu_image.image_id, None, (0,), 1 << 30, tmp_path / "cache")
            task = make_task(*(make_trial("synthetic-sleep", trial_id=f"t{i}", batch=i + 1) for i in range(500)))
            stage(task, tmp_path / "task")
            driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert driver.stdin is not None
            assert driver.stdout is not None
            driver.stdin.write(pickle.dumps((settings, task, tmp_path / "task", limit_s)))
            driver.stdin.close()
            found = Driven(client, driver, task, tmp_path / "task")
            begun.append(found)
            assert any(line == b"Begin\n" for line in driver.stdout)
            return found

        yield start
        for one in begun:
            one.driver.kill()
            with one.driver:
                pass  # closes its pipe and waits for it
            for container in one.containers():
                remove_container(container)


def test_a_container_ends_with_its_driver(drive: Callable[[int], Driven]) -> None:
    task = drive(300)
    task.driver.kill()
    assert task.ended_after_s(ENGINE_S) is not None
    assert "the orchestrator is gone" in task.log.read_text()


def test_a_signal_to_a_container_reaches_the_supervisor(drive: Callable[[int], Driven]) -> None:
    task = drive(300)
    task.container().kill(signal.SIGTERM)
    assert task.ended_after_s(ENGINE_S) is not None
    assert "ended by SIGTERM" in task.log.read_text()


def test_a_container_whose_supervisor_is_stopped_ends_without_us_when_its_time_is_over(
    drive: Callable[[int], Driven],
) -> None:
    task = drive(10)
    assert task.container().exec_run(["sh", "-c", STOP_SUPERVISOR]).exit_code == 0
    task.driver.kill()
    assert task.ended_after_s(10 + ENGINE_S) is not None
    assert "gone" not in task.log.read_text(), "a stopped supervisor hears nothing"


def test_a_task_that_reached_its_time_limit_is_told_so(drive: Callable[[int], Driven]) -> None:
    task = drive(10)
    assert task.driver.stdout is not None
    assert task.ended_after_s(10 + ENGINE_S) is not None
    assert task.driver.stdout.read().splitlines()[-1] == b"the container reached its time limit of 10 s"
