"""`python -m runners` on tasks with sessions: what their records say of it."""

import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runners.contract import (
    NO_GUARDS,
    Begin,
    End,
    Environment,
    GuardMoment,
    Interleaving,
    LoadGuard,
    Protocol,
    Series,
    Session,
    Status,
    Stop,
    Trial,
    TrialRecord,
)
from tests.contract.conftest import ran
from tests.tasks import QUICK, lines, recorded, trial

pytestmark = pytest.mark.slow

TURNS = replace(QUICK, turn_ms=20, cycles=4, min_cycles=3, floor_budget_ms=0, sync_budget_ms=10_000)


def pair(name: str, protocol: Protocol = TURNS, timeout_s: int = 30) -> tuple[Trial, Trial]:
    first = trial(name, protocol=protocol, timeout_s=timeout_s)
    return replace(first, trial_id="first"), replace(first, trial_id="twin", replicate=1)


def sync(record: TrialRecord) -> Series:
    [series] = [series for series in record.series if series.mode == "sync"]
    return series


def test_a_session_begins_together_and_its_records_stand_at_its_end(tmp_path: Path) -> None:
    first, twin, other = ran(tmp_path, *pair("synthetic-null"), trial("synthetic-sleep", protocol=TURNS))
    kinds = [type(line) for line in lines(tmp_path)]
    assert kinds == [Environment, Begin, Begin, TrialRecord, TrialRecord, Begin, TrialRecord, End]
    assert (first.trial_id, twin.trial_id) == ("first", "twin")
    assert first.session is not None
    assert other.session is not None
    assert first.session == twin.session != other.session
    assert (first.session.interleaving, first.session.processes, other.session.processes) == (Interleaving.TURNS, 2, 1)
    for record in (first, twin, other):
        assert (record.status, sync(record).stopped, len(sync(record).turns)) == (Status.OK, Stop.CYCLES, 4)
        assert sum(sync(record).turns) == len(sync(record).durations_ns)
        assert record.verification is not None
        assert record.verification.after_timing


def test_the_phases_of_a_trial_are_all_of_its_time(tmp_path: Path) -> None:
    found = ran(tmp_path, *pair("synthetic-null"), trial("synthetic-sleep", protocol=TURNS), trial("synthetic-raise"))
    for record in found:
        phases, whole_s = record.phases, (record.finished_at_ns - record.started_at_ns) / 1e9
        assert phases.total_s == pytest.approx(whole_s, rel=0.02)
        assert phases.process_s
        assert phases.session_s
    first, twin, sleeping, raising = (record.phases for record in found)
    # Two clocks: a busy machine may take one of the processes away between them
    assert first.total_s - first.others_s - first.session_s == pytest.approx(twin.others_s, rel=0.3)
    assert (sleeping.others_s, raising.others_s) == (0.0, 0.0)
    for phases, record in ((first, found[0]), (sleeping, found[2])):
        assert sum(sync(record).durations_ns) / 1e9 <= phases.timed_s
        assert min(phases.verify_s, phases.warmup_s, phases.facts_s, phases.load_s) > 0.0
    assert raising.timed_s is None


def test_a_second_run_of_a_session_has_another_id(tmp_path: Path) -> None:
    found = set()
    for name in "ab":
        (tmp_path / name).mkdir()
        records = ran(tmp_path / name, *pair("synthetic-null"))
        found |= {record.session.session_id for record in records if record.session}
    assert len(found) == 2


def test_a_slow_call_is_timed_twice_in_each_turn_and_its_budget_ends_the_session(tmp_path: Path) -> None:
    # sleeps 50 ms in each call
    for record in ran(tmp_path, *pair("synthetic-sleep", replace(TURNS, turn_ms=10, cycles=9, sync_budget_ms=60))):
        assert (sync(record).turns, sync(record).stopped) == ((2, 2, 2), Stop.BUDGET)
        assert statistics.median(sync(record).durations_ns) >= 50_000_000


def test_a_call_is_timed_up_to_four_times_in_each_turn_where_the_budget_has_room_for_it(tmp_path: Path) -> None:
    roomy = replace(TURNS, turn_ms=10, min_cycles=4, sync_budget_ms=4000)
    for record in ran(tmp_path, *pair("synthetic-sleep", roomy)):
        assert (sync(record).turns, sync(record).stopped) == ((4, 4, 4, 4), Stop.CYCLES)


def test_the_guards_look_once_around_a_session_and_stand_in_each_of_its_records(tmp_path: Path) -> None:
    guards = replace(NO_GUARDS, load=LoadGuard(window_ms=50))
    first, twin = ran(tmp_path, *pair("synthetic-null"), guards=guards)
    assert [result.moment for result in first.guards] == [GuardMoment.BEFORE, GuardMoment.AFTER]
    assert first.guards == twin.guards
    assert first.conditions_before == twin.conditions_before
    assert first.conditions_after == twin.conditions_after


NO_ROOM = """
from runners.supervision import trial

class NoRoom(trial.Room):
    def shortage(self):
        return "1 MiB of gpu0 are free, and the largest of its session takes 9 MiB"

trial.Room = NoRoom
"""


def test_what_has_no_room_is_measured_alone_and_says_why(tmp_path: Path) -> None:
    found = recorded(tmp_path, Path(sys.executable), *pair("synthetic-null"), before=NO_ROOM)
    first, twin = found["first"], found["twin"]
    assert first.session is not None
    reason = "no room beside the others: 1 MiB of gpu0 are free, and the largest of its session takes 9 MiB"
    assert first.session == Session(first.session.session_id, Interleaving.TURNS, 1)
    assert twin.session is not None
    assert twin.session == Session(twin.session.session_id, Interleaving.ALONE, 1, reason)
    assert first.session.session_id != twin.session.session_id
    assert [(record.status, len(sync(record).turns)) for record in (first, twin)] == [(Status.OK, 4)] * 2


OUT_OF_MEMORY = """
import os
from runners.contract import Status
from runners.protocol.answer import Answer
from runners.supervision import kernel, trial

def measure(spec, cached, turns, is_counted):
    for _ in turns:
        if len(kernel.descendants(os.getppid())) > 1:
            raise MemoryError
    return Answer(Status.OK)

trial.measure = measure
"""


def test_what_runs_out_of_memory_beside_others_is_measured_again_alone(tmp_path: Path) -> None:
    found = recorded(tmp_path, Path(sys.executable), *pair("synthetic-null"), before=OUT_OF_MEMORY).values()
    assert [record.status for record in found] == [Status.OK] * 2
    assert sorted((record.session.processes, record.session.reason or "") for record in found if record.session) == [
        (1, "out of memory while 2 processes were alive"),
        (2, ""),
    ]


STATE = """
import ctypes, gc, math, os, random, resource, signal, sys
from runners.protocol import measure
from runners.workloads.synthetic import Null

libc, examined, compute = ctypes.CDLL(None), measure._examined, Null.call

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in "arena ordblks smblks hblks hblkhd u f o k c".split()]

libc.mallinfo.restype, libc.malloc.restype = Info, ctypes.c_void_p

def is_mapped(size):
    before = libc.mallinfo().hblks
    libc.malloc(ctypes.c_size_t(size))
    return libc.mallinfo().hblks > before

def state():
    return {
        "threads": "%s %s" % (sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)),
        "flags": "%s %s" % (sys.getrecursionlimit(), os.environ.get("OMP_NUM_THREADS")),
        "signals": str(signal.getsignal(signal.SIGUSR1)),
        "collector": str(gc.get_threshold()),
        "allocator": is_mapped(1 << 26),
        "limits": str(resource.getrlimit(resource.RLIMIT_NOFILE)),
        "modules": math.tau,
        "place": "%s %s" % (os.getcwd(), os.umask(0o22)),
    }

def meddle():
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    sys.setrecursionlimit(5000)
    os.environ["OMP_NUM_THREADS"] = "7"
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    gc.set_threshold(1)
    libc.mallopt(-4, 0)  # M_MMAP_MAX
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    math.tau = 0.0
    os.chdir("/")
    os.umask(0)

def call(self, rows):
    try:
        os.close(os.open(sys.argv[1] + "/meddler", os.O_CREAT | os.O_EXCL))
        self.meddles = True
    except FileExistsError:
        pass
    if getattr(self, "meddles", False):
        meddle()
    return compute(self, rows)

Null.call = call
measure._examined = lambda backend, subject: dict(examined(backend, subject), **state())
"""


def test_what_a_trial_does_to_its_process_changes_neither_its_neighbour_nor_the_next_session(tmp_path: Path) -> None:
    first, twin = pair("synthetic-null")
    later = replace(first, trial_id="later", round=1)
    task, alone = tmp_path / "task", tmp_path / "alone"
    for directory in (task, alone):
        directory.mkdir()
    (alone / "meddler").touch()
    found = recorded(task, Path(sys.executable), first, twin, later, before=STATE)
    [undisturbed] = recorded(alone, Path(sys.executable), first, before=STATE).values()
    names = ("threads", "flags", "signals", "collector", "allocator", "limits", "modules", "place")
    states = {key: [record.facts[name] for name in names] for key, record in found.items()}
    expected = [undisturbed.facts[name] for name in names]
    assert [name for name, *both in zip(names, states["first"], expected, strict=True) if both[0] == both[1]] == []
    assert (states["twin"], states["later"]) == (expected, expected)


COUNTED = """
import os
from runners.protocol import measure

measure._counted = lambda backend, subject: {"operations": os.getpid()}
"""


def test_what_calls_consist_of_is_counted_once_for_all_sessions_and_memory_in_each(tmp_path: Path) -> None:
    first, twin = pair("synthetic-null")
    later = replace(first, trial_id="later", round=first.round + 1)
    found = recorded(tmp_path, Path(sys.executable), first, twin, later, before=COUNTED)
    counts = {(record.facts["operations"], record.facts["counted_by"]) for record in found.values()}
    assert [by for _, by in counts] == ["first"]
    assert all(record.facts["memory_peak_rss_bytes"] for record in found.values())


UNCOUNTED = """
import os
import sys
from runners.protocol import measure

def counted(backend, subject):
    try:
        os.close(os.open(sys.argv[1] + "/counted", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return {"operations": 7}
    return {"operations_problem": "no room"}

measure._counted = counted
"""


def test_what_one_process_could_not_count_the_next_one_counts(tmp_path: Path) -> None:
    first, twin = pair("synthetic-null")
    later = replace(first, trial_id="later", round=first.round + 1)
    found = recorded(tmp_path, Path(sys.executable), first, twin, later, before=UNCOUNTED)
    said = {name: (record.facts.get("operations"), record.facts["counted_by"]) for name, record in found.items()}
    assert said == {"first": (None, "first"), "twin": (7, "twin"), "later": (7, "twin")}


def test_a_trial_that_is_to_be_alone_says_why(tmp_path: Path) -> None:
    found = ran(tmp_path, *[replace(each, attempt=3, alone=True) for each in pair("synthetic-null")])
    sessions = [record.session for record in found if record.session]
    assert [session.reason for session in sessions] == ["it or another one of its session ended earlier starts"] * 2
    assert [type(line) for line in lines(tmp_path)][1:3] == [Begin, TrialRecord]


def test_the_papers_procedure_is_in_no_session(tmp_path: Path) -> None:
    for record in ran(tmp_path, *pair("synthetic-null", Protocol(procedure="legacy", legacy_passes=5))):
        assert (record.status, record.session) == (Status.OK, None)
        assert [series.mode for series in record.series] == ["warmup", "legacy"]


def test_back_to_back_calls_are_timed_only_if_they_are_asked_for(tmp_path: Path) -> None:
    [record] = ran(tmp_path, trial("synthetic-null", protocol=replace(TURNS, pipelined_budget_ms=0)))
    assert [series.mode for series in record.series] == ["warmup", "sync"]
