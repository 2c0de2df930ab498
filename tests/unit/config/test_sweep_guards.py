"""The key `guards` of a sweep: what a user may write, and what the runner gets."""

import re
from dataclasses import asdict, replace
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from orchestrator.config import Sweep, load_sweep
from orchestrator.execution.base import time_limit_s
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost, plan
from runners.contract import NO_GUARDS, ClockRule, GuardPolicy, Guards, LoadGuard
from tests.refusals import refusal

QUICKSTART = (Path(__file__).parents[2] / "data" / "rounds.yaml").read_text()


def sweep(tmp_path: Path, guards: str) -> Sweep:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"{QUICKSTART}{guards}\n")
    return load_sweep(path)


def test_a_sweep_that_says_nothing_has_guards_that_flag(tmp_path: Path) -> None:
    guards = sweep(tmp_path, "").guards
    assert guards == Guards()
    every = (guards.gpu_processes, guards.load, guards.throttling, guards.clocks)
    assert {guard.policy for guard in every} == {GuardPolicy.FLAG}


def test_a_guard_is_a_policy_or_a_mapping_with_its_limits(tmp_path: Path) -> None:
    guards = sweep(
        tmp_path,
        "guards:\n  gpu_processes: error\n  load: {policy: wait, max_busy_permille: 50, wait_s: 20}\n"
        "  clocks: {policy: flag, require: fixed}\n  throttling: off",
    ).guards
    assert guards.gpu_processes.policy is GuardPolicy.ERROR
    assert guards.load == LoadGuard(GuardPolicy.WAIT, max_busy_permille=50, wait_s=20)
    assert guards.clocks.require is ClockRule.FIXED
    assert guards.throttling.policy is GuardPolicy.OFF


def test_one_policy_can_stand_for_all_guards(tmp_path: Path) -> None:
    assert sweep(tmp_path, "guards: off").guards == NO_GUARDS


MISTAKES = (
    "guards: {lod: flag}",
    "guards: strict",
    "guards:\n  load: warn",
    "guards:\n  load: {policy: warn}",
    "guards:\n  load: {wait_s: 5}",
    "guards:\n  load: {max_busy_permille: 2000}",
    "guards:\n  load: {policy: wait, wait_s: 0}",
    "guards:\n  clocks: {require: locked}",
    "guards:\n  clocks: {max_busy_permille: 5}",
    "guards:\n  load:",
)


def test_a_wrong_guard_gives_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "sweep.yaml"
    assert {text: refusal(load_sweep, path, f"{QUICKSTART}{text}\n") for text in MISTAKES} == snapshot


def test_every_planned_task_has_the_guards_and_keys_do_not_know_them(tmp_path: Path) -> None:
    pins = {"cpu": EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "lock")}
    host = PlanningHost("h1", {}, (0, 1), pins)
    plain, strict = (plan(sweep(tmp_path, text), [host], "c") for text in ("", "guards: error"))
    assert plain.digest == strict.digest
    assert {task.task.guards for task in plain.tasks} == {Guards()}
    [guards] = {task.task.guards for task in strict.tasks}
    assert guards.load.policy is GuardPolicy.ERROR
    first = strict.tasks[0].task
    assert replace(first, trials=first.trials[:1]).guards == guards


def test_what_a_guard_may_wait_is_no_part_of_the_time_that_trials_have(tmp_path: Path) -> None:
    pins = {"cpu": EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "lock")}
    waiting = sweep(tmp_path, "guards:\n  load: {policy: wait, wait_s: 600}\n  clocks: off")
    task = plan(waiting, [PlanningHost("h1", {}, (0, 1), pins)], "c").tasks[0].task
    unguarded = replace(task, guards=NO_GUARDS)
    assert time_limit_s(task) >= time_limit_s(unguarded) + 600 * len(task.trials)


def test_the_documented_defaults_are_the_defaults(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "measurement.md").read_text()
    [block] = re.findall(r"^```yaml\n(guards:\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    written = sweep(tmp_path, block)
    assert written.guards == Guards()
    documented = {name: {*keys, "wait_s"} for name, keys in written.file.tree["guards"].items()}
    assert documented == {name: set(keys) for name, keys in asdict(Guards()).items()}
