"""Guards around a trial, on a made-up tree of /proc and /sys: what each sees, and what its policy makes of it."""

import time
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
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


def clocks(
    machine: Machine, require: ClockRule = ClockRule.UNCHANGED, policy: GuardPolicy = GuardPolicy.FLAG
) -> ClocksCheck:
    return ClocksCheck(ClocksGuard(policy, require), CORES, str(machine.root))


def guarding(machine: Machine, *some: checks.Check) -> Guarding:
    return Guarding(some, tuple, machine.pause, lambda _: None)


def before(check: checks.Check) -> Reading:
    reading = check.before(())
    assert reading is not None
    return reading


def after(check: checks.Check, trial: Callable[[], None] = lambda: None) -> Reading:
    check.start(())
    trial()
    reading = check.after(())
    assert reading is not None
    return reading


@pytest.mark.parametrize(("others", "is_over"), [(0.0, False), (0.08, False), (0.2, True), (1.0, True)])
def test_who_is_on_the_cores_before_a_trial_is_somebody_else(machine: Machine, others: float, is_over: bool) -> None:
    machine.others = others
    reading = before(load(machine))
    assert reading.observed == pytest.approx(1000 * others, abs=40)
    assert (reading.is_over, reading.unit, reading.detail) == (is_over, "permille", "cores 0-1")


def test_during_a_trial_its_own_time_is_no_load_of_others(machine: Machine) -> None:
    assert after(load(machine), lambda: machine.run(5.0, own=0.9)).observed == pytest.approx(0, abs=5)
    machine.others = 0.3
    assert after(load(machine), lambda: machine.run(5.0, own=0.5)).observed == pytest.approx(300, abs=5)


def test_sessions_that_follow_each_other_wait_for_no_window(machine: Machine) -> None:
    check = load(machine)
    for _ in range(40):
        assert not machine.pauses[1:]
        assert not before(check).is_over
        after(check, lambda: machine.run(0.05, own=0.9))


@pytest.mark.parametrize(("policy", "pauses"), [(GuardPolicy.FLAG, []), (GuardPolicy.ERROR, [0.25])])
def test_before_a_session_is_refused_the_last_ones_neighbour_is_looked_for_again(
    machine: Machine, policy: GuardPolicy, pauses: list[float]
) -> None:
    check = load(machine, policy)
    machine.others = 0.5
    after(check, lambda: machine.run(0.5, own=0.2))
    machine.others = 0.0
    assert (before(check).is_over, machine.pauses) == (policy is GuardPolicy.FLAG, pauses)


def test_of_a_long_session_the_last_window_is_not_known(machine: Machine) -> None:
    check = load(machine)
    after(check, lambda: machine.run(60.0, own=0.9))
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


BUSY = "others keep the trial's cores busy"
NOT_RUN = "; the trial did not run"


@pytest.mark.parametrize(
    ("policy", "wait_s", "outcome", "waited_s", "problem"),
    [
        (GuardPolicy.FLAG, 60, GuardOutcome.FLAGGED, 0, None),
        (GuardPolicy.ERROR, 60, GuardOutcome.FAILED, 0, NOT_RUN),
        (GuardPolicy.WAIT, 60, GuardOutcome.WAITED, pytest.approx(11, abs=2), None),
        (GuardPolicy.WAIT, 5, GuardOutcome.FAILED, pytest.approx(6, abs=1), ", still after waiting 5 s" + NOT_RUN),
    ],
)
def test_a_neighbour_of_ten_seconds_is_told_keeps_the_trial_from_running_or_is_waited_for(
    machine: Machine, policy: GuardPolicy, wait_s: int, outcome: GuardOutcome, waited_s: float, problem: str | None
) -> None:
    def leave() -> None:
        machine.others = 0.5 if machine.now_s < 1010 else 0.0

    machine.others, machine.on_pause = 0.5, leave
    verdict = guarding(machine, load(machine, policy, wait_s=wait_s)).before()
    [result] = verdict.results
    seen = (result.observed, 100, "permille", "cores 0-1")
    assert result == GuardResult("load", GuardMoment.BEFORE, policy, outcome, *seen, waited_s)
    assert verdict.problem == (problem and f"guard load: {BUSY}{problem}")


@pytest.mark.parametrize(
    ("policy", "outcome", "problem"),
    [
        (GuardPolicy.FLAG, GuardOutcome.FLAGGED, None),
        (GuardPolicy.ERROR, GuardOutcome.FAILED, f"during the trial: {BUSY}; what it measured does not count"),
    ],
)
def test_a_neighbour_that_comes_meanwhile_is_told_or_takes_the_trial_its_worth(
    machine: Machine, policy: GuardPolicy, outcome: GuardOutcome, problem: str | None
) -> None:
    watch = guarding(machine, load(machine, policy))
    assert watch.before().problem is None
    watch.start()
    machine.others = 0.5
    machine.run(2.0, own=0.4)
    verdict = watch.after()
    assert [result.outcome for result in verdict.results] == [outcome]
    assert verdict.problem == (problem and f"guard load, {problem}")


def test_after_a_guard_that_failed_no_other_is_waited_for(machine: Machine) -> None:
    machine.others = 0.5
    some = (load(machine, GuardPolicy.ERROR), load(machine, GuardPolicy.WAIT, wait_s=600))
    assert len(guarding(machine, *some).before().results) == 1
    assert machine.now_s < 1002


def count(machine: Machine, counter: str, value: int) -> None:
    """Sets the counter of quotas, or one of heat: that of the other core stands still."""
    machine.write("sys/fs/cgroup/cpu.stat", f"usage_usec 9\nthrottled_usec {value if counter == 'quota' else 0}\n")
    for core in CORES if counter != "quota" else ():
        path = f"{CPUS}/cpu{core}/thermal_throttle/core_throttle_{counter}"
        machine.write(path, f"{value if core else 4}\n")


@pytest.mark.parametrize(
    ("counter", "first", "second", "seconds", "expected"),
    [
        ("quota", 100_000, 500_000, 2.0, (pytest.approx(200), 10, "permille", "quota")),
        ("total_time_ms", 300, 900, 10.0, (pytest.approx(60), 10, "permille", "heat")),
        # Some processors only count events
        ("count", 5, 7, 1.0, (2, 0, "events", "heat")),
    ],
)
def test_a_quota_that_held_the_trial_back_and_heat_of_the_processors_are_throttling(
    machine: Machine, counter: str, first: int, second: int, seconds: float, expected: tuple[object, ...]
) -> None:
    def throttled() -> None:
        count(machine, counter, second)
        machine.run(seconds, own=0.5)

    count(machine, counter, first)
    assert not after(throttling(machine), lambda: machine.run(seconds, own=0.5)).is_over
    reading = after(throttling(machine), throttled)
    assert (astuple(reading), reading.is_over) == (expected, True)


def governors(machine: Machine, *names: str) -> None:
    for core, name in zip(CORES, names, strict=True):
        machine.write(f"{CPUS}/cpu{core}/cpufreq/scaling_governor", f"{name}\n")


def test_a_governor_that_somebody_changes_meanwhile_is_named(machine: Machine) -> None:
    governors(machine, "performance", "performance")
    machine.write(f"{CPUS}/cpufreq/boost", "1\n")
    assert after(clocks(machine)) == Reading(0, 0, "settings", "governor performance, boost on")
    other = after(clocks(machine), lambda: governors(machine, "performance", "powersave"))
    assert other == Reading(1, 0, "settings", "governor performance → performance,powersave")


def test_clocks_that_must_be_fixed_are_looked_at_before_the_trial(machine: Machine) -> None:
    governors(machine, "powersave", "powersave")
    machine.write(f"{CPUS}/intel_pstate/no_turbo", "0\n")
    assert clocks(machine).before(()) is None
    fixed = clocks(machine, ClockRule.FIXED)
    assert fixed.before(()) == Reading(2, 0, "settings", "governor powersave, boost on")
    governors(machine, "performance", "performance")
    machine.write(f"{CPUS}/intel_pstate/no_turbo", "1\n")
    assert fixed.before(()) == Reading(0, 0, "settings", "governor performance, boost off")


@pytest.mark.parametrize(
    ("check", "detail"),
    [
        (throttling, "no counter of quotas or heat can be read"),
        (clocks, "the system tells no setting of its clocks"),
        (partial(clocks, require=ClockRule.FIXED), "the system tells no setting of its clocks"),
    ],
)
def test_a_system_that_tells_nothing_is_unseen(
    machine: Machine, check: Callable[..., checks.Check], detail: str
) -> None:
    watch = guarding(machine, check(machine, policy=GuardPolicy.ERROR))
    before = watch.before()
    watch.start()
    seen = {(result.outcome, result.detail) for result in before.results + watch.after().results}
    assert (seen, before.problem) == ({(GuardOutcome.UNSEEN, detail)}, None)


def test_guards_that_are_off_look_at_nothing(machine: Machine) -> None:
    watch = guarding_for(NO_GUARDS, "cpu", machine.pause, str(machine.root))
    assert watch.before().results == ()
    watch.start()
    assert watch.after().results == ()
    assert machine.pauses == []
