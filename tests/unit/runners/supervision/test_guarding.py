"""Guards around a trial, on a made-up tree of /proc and /sys: what each sees, and what its policy makes of it."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runners.contract import (
    NO_GUARDS,
    ClockRule,
    ClocksGuard,
    GuardMoment,
    GuardOutcome,
    GuardPolicy,
    GuardResult,
    LoadGuard,
    ThrottlingGuard,
)
from runners.supervision import checks
from runners.supervision.checks import ClocksCheck, LoadCheck, Reading, ThrottlingCheck
from runners.supervision.guarding import Guarding, guarding_for
from runners.system import core_times

CPUS = "sys/devices/system/cpu"
CORES = (0, 1)
TICKS_PER_S = 100


class Machine:
    """Two cores on a clock of its own. Time passes only in `pause`, and the kernel counts it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.now_s = 1000.0
        self.own_s = 0.0
        self.others = 0.0
        """Share of both cores that others take."""
        self.pauses: list[float] = []
        self.on_pause: Callable[[], None] = lambda: None
        self._busy = [10_000.0, 10_000.0]
        self._idle = [50_000.0, 50_000.0]
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(core_times, "own_cpu_s", lambda: self.own_s)
        self.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        self.write("proc/self/cgroup", "0::/\n")
        self._show()

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def pause(self, seconds: float) -> None:
        """As a runner that waits for something: it takes no time of any core."""
        self.pauses.append(seconds)
        self.run(seconds, own=0.0)
        self.on_pause()

    def run(self, seconds: float, own: float) -> None:
        """Time passes in which the trial takes the share `own` of both cores."""
        busy = min(1.0, self.others + own)
        for core in range(2):
            self._busy[core] += busy * seconds * TICKS_PER_S
            self._idle[core] += (1 - busy) * seconds * TICKS_PER_S
        self.own_s += own * seconds * 2
        self.now_s += seconds
        self._show()

    def _show(self) -> None:
        lines = ["cpu  0 0 0 0 0 0 0 0 0 0"]
        for core in range(2):
            # A part of the idle time is spent waiting for a disk
            busy, idle = round(self._busy[core]), round(self._idle[core])
            lines.append(f"cpu{core} {busy - 30} 10 10 {idle - 7} 7 0 5 5 0 0")
        self.write("proc/stat", "\n".join(lines) + "\nintr 1 2 3\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def load(machine: Machine, policy: GuardPolicy = GuardPolicy.FLAG, **limits: int) -> LoadCheck:
    return LoadCheck(LoadGuard(policy, **limits), CORES, machine.pause, str(machine.root))


def throttling(machine: Machine, policy: GuardPolicy = GuardPolicy.FLAG) -> ThrottlingCheck:
    return ThrottlingCheck(ThrottlingGuard(policy), CORES, str(machine.root))


def clocks(machine: Machine, require: ClockRule = ClockRule.UNCHANGED) -> ClocksCheck:
    return ClocksCheck(ClocksGuard(GuardPolicy.FLAG, require), CORES, str(machine.root))


def guarding(machine: Machine, *some: checks.Check) -> Guarding:
    return Guarding(some, tuple, machine.pause, lambda _: None)


def after(machine: Machine, check: checks.Check, trial: Callable[[], None]) -> Reading:
    check.start(())
    trial()
    reading = check.after(())
    assert reading is not None
    return reading


@pytest.mark.parametrize(("others", "is_over"), [(0.0, False), (0.08, False), (0.2, True), (1.0, True)])
def test_who_is_on_the_cores_before_a_trial_is_somebody_else(machine: Machine, others: float, is_over: bool) -> None:
    machine.others = others
    reading = load(machine).before(())
    assert reading is not None
    assert reading.observed == pytest.approx(1000 * others, abs=40)
    assert (reading.is_over, reading.unit, reading.detail) == (is_over, "permille", "cores 0-1")


def test_during_a_trial_its_own_time_is_no_load_of_others(machine: Machine) -> None:
    assert after(machine, load(machine), lambda: machine.run(5.0, own=0.9)).observed == pytest.approx(0, abs=5)
    machine.others = 0.3
    assert after(machine, load(machine), lambda: machine.run(5.0, own=0.5)).observed == pytest.approx(300, abs=5)


def test_sessions_that_follow_each_other_wait_for_no_window(machine: Machine) -> None:
    check = load(machine)
    for _ in range(40):
        assert not machine.pauses[1:]
        reading = check.before(())
        assert reading is not None
        assert not reading.is_over
        after(machine, check, lambda: machine.run(0.05, own=0.9))


@pytest.mark.parametrize(("policy", "pauses"), [(GuardPolicy.FLAG, []), (GuardPolicy.ERROR, [0.25])])
def test_before_a_session_is_refused_the_last_ones_neighbour_is_looked_for_again(
    machine: Machine, policy: GuardPolicy, pauses: list[float]
) -> None:
    check = load(machine, policy)
    machine.others = 0.5
    after(machine, check, lambda: machine.run(0.5, own=0.2))
    machine.others = 0.0
    reading = check.before(())
    assert reading is not None
    assert (reading.is_over, machine.pauses) == (policy is GuardPolicy.FLAG, pauses)


def test_of_a_long_session_the_last_window_is_not_known(machine: Machine) -> None:
    check = load(machine)
    after(machine, check, lambda: machine.run(60.0, own=0.9))
    check.before(())
    assert machine.pauses == [0.25]


@pytest.mark.parametrize("text", ["", "cpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8\n"])
def test_a_core_that_the_kernel_does_not_list_is_unseen(machine: Machine, text: str) -> None:
    machine.write("proc/stat", text)
    [result] = guarding(machine, LoadCheck(LoadGuard(), (7, 8), machine.pause, str(machine.root))).before().results
    assert (result.outcome, result.observed) == (GuardOutcome.UNSEEN, None)
    assert result.detail == "cores 7-8: /proc/stat does not count them"


def test_a_proc_that_stands_still_is_unseen_and_not_busy(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_show", lambda: None)
    [result] = guarding(machine, load(machine, GuardPolicy.ERROR)).before().results
    assert result.outcome is GuardOutcome.UNSEEN


def test_a_flag_lets_the_trial_run_and_says_what_was_seen(machine: Machine) -> None:
    machine.others = 0.5
    watch = guarding(machine, load(machine))
    verdict = watch.before()
    assert verdict.problem is None
    [result] = verdict.results
    assert result == replace(
        GuardResult("load", GuardMoment.BEFORE, GuardPolicy.FLAG, GuardOutcome.FLAGGED, 0, 100, "permille", None, 0),
        observed=result.observed,
        detail="cores 0-1",
    )
    watch.start()
    machine.run(2.0, own=0.4)
    assert [one.outcome for one in watch.after().results] == [GuardOutcome.FLAGGED]
    assert watch.after().problem is None


def test_an_error_keeps_the_trial_from_running_and_names_the_guard(machine: Machine) -> None:
    machine.others = 0.5
    verdict = guarding(machine, load(machine, GuardPolicy.ERROR)).before()
    assert verdict.problem == "guard load: others keep the trial's cores busy; the trial did not run"
    assert [one.outcome for one in verdict.results] == [GuardOutcome.FAILED]


def test_an_error_after_the_trial_says_that_it_does_not_count(machine: Machine) -> None:
    watch = guarding(machine, load(machine, GuardPolicy.ERROR))
    assert watch.before().problem is None
    watch.start()
    machine.others = 0.5
    machine.run(2.0, own=0.4)
    assert watch.after().problem == (
        "guard load, during the trial: others keep the trial's cores busy; what it measured does not count"
    )


def test_a_wait_ends_when_the_neighbour_does(machine: Machine) -> None:
    machine.others = 0.5

    def leave_after_10_s() -> None:
        machine.others = 0.5 if machine.now_s < 1010 else 0.0

    machine.on_pause = leave_after_10_s
    verdict = guarding(machine, load(machine, GuardPolicy.WAIT, wait_s=60)).before()
    assert verdict.problem is None
    [result] = verdict.results
    assert result.outcome is GuardOutcome.WAITED
    assert 9 < result.waited_s < 13


def test_a_wait_that_is_over_is_an_error_that_says_how_long_it_waited(machine: Machine) -> None:
    machine.others = 0.5
    verdict = guarding(machine, load(machine, GuardPolicy.WAIT, wait_s=20)).before()
    assert verdict.problem == (
        "guard load: others keep the trial's cores busy, still after waiting 20 s; the trial did not run"
    )
    [result] = verdict.results
    assert result.outcome is GuardOutcome.FAILED
    assert 20 <= result.waited_s < 22


def test_after_a_guard_that_failed_no_other_is_waited_for(machine: Machine) -> None:
    machine.others = 0.5
    some = (load(machine, GuardPolicy.ERROR), load(machine, GuardPolicy.WAIT, wait_s=600))
    assert len(guarding(machine, *some).before().results) == 1
    assert machine.now_s < 1002


def test_a_quota_that_held_the_trial_back_is_throttling(machine: Machine) -> None:
    def throttled() -> None:
        machine.write("sys/fs/cgroup/cpu.stat", "usage_usec 9\nthrottled_usec 500000\n")
        machine.run(2.0, own=0.5)

    machine.write("sys/fs/cgroup/cpu.stat", "usage_usec 9\nthrottled_usec 100000\n")
    reading = after(machine, throttling(machine), throttled)
    assert (reading.observed, reading.detail, reading.is_over) == (pytest.approx(200), "quota", True)
    assert not after(machine, throttling(machine), lambda: machine.run(2.0, own=0.5)).is_over


def heat(machine: Machine, what: str, *values: int) -> None:
    for core, value in zip(CORES, values, strict=True):
        machine.write(f"{CPUS}/cpu{core}/thermal_throttle/core_throttle_{what}", f"{value}\n")


def test_heat_of_the_processors_is_throttling(machine: Machine) -> None:
    heat(machine, "total_time_ms", 100, 300)

    def hot() -> None:
        heat(machine, "total_time_ms", 100, 900)
        machine.run(10.0, own=0.5)

    reading = after(machine, throttling(machine), hot)
    assert (reading.observed, reading.detail) == (pytest.approx(60), "heat")


def test_a_processor_that_only_counts_events_of_heat_is_heard(machine: Machine) -> None:
    heat(machine, "count", 4, 5)
    assert not after(machine, throttling(machine), lambda: machine.run(1.0, own=0.5)).is_over

    def hot() -> None:
        heat(machine, "count", 4, 7)
        machine.run(1.0, own=0.5)

    reading = after(machine, throttling(machine), hot)
    assert (reading.observed, reading.limit, reading.unit) == (2, 0, "events")


def test_a_system_that_counts_no_throttling_is_unseen(machine: Machine) -> None:
    watch = guarding(machine, throttling(machine))
    assert watch.before().results == ()
    watch.start()
    [result] = watch.after().results
    assert (result.outcome, result.detail) == (GuardOutcome.UNSEEN, "no counter of quotas or heat can be read")


def governors(machine: Machine, *names: str) -> None:
    for core, name in zip(CORES, names, strict=True):
        machine.write(f"{CPUS}/cpu{core}/cpufreq/scaling_governor", f"{name}\n")


def test_a_governor_that_somebody_changes_meanwhile_is_named(machine: Machine) -> None:
    governors(machine, "performance", "performance")
    machine.write(f"{CPUS}/cpufreq/boost", "1\n")
    same = after(machine, clocks(machine), lambda: None)
    assert (same.observed, same.detail) == (0, "governor performance, boost on")
    other = after(machine, clocks(machine), lambda: governors(machine, "performance", "powersave"))
    assert (other.observed, other.detail) == (1, "governor performance → performance,powersave")
    assert other.is_over


def test_clocks_that_must_be_fixed_are_looked_at_before_the_trial(machine: Machine) -> None:
    governors(machine, "powersave", "powersave")
    machine.write(f"{CPUS}/intel_pstate/no_turbo", "0\n")
    assert clocks(machine).before(()) is None
    reading = clocks(machine, ClockRule.FIXED).before(())
    assert reading == Reading(2, 0, "settings", "governor powersave, boost on")
    governors(machine, "performance", "performance")
    machine.write(f"{CPUS}/intel_pstate/no_turbo", "1\n")
    assert clocks(machine, ClockRule.FIXED).before(()) == Reading(0, 0, "settings", "governor performance, boost off")


def test_a_system_that_tells_no_setting_is_unseen_whatever_is_required(machine: Machine) -> None:
    for require in ClockRule:
        check = ClocksCheck(ClocksGuard(GuardPolicy.ERROR, require), CORES, str(machine.root))
        watch = guarding(machine, check)
        before = watch.before()
        watch.start()
        seen = before.results + watch.after().results
        assert {one.outcome for one in seen} == {GuardOutcome.UNSEEN}
        assert before.problem is None


def test_guards_that_are_off_look_at_nothing(machine: Machine) -> None:
    watch = guarding_for(NO_GUARDS, "cpu", machine.pause, str(machine.root))
    assert watch.before().results == ()
    watch.start()
    assert watch.after().results == ()
    assert machine.pauses == []
