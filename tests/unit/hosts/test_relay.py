"""Tasks for hosts without engines: what crosses the socket, what a host may say, and the program that is sent there."""

import ast
import errno
import inspect
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from threading import Event

import pytest

from orchestrator.config import Connection, Host, Inventory
from orchestrator.errors import InfrastructureError
from orchestrator.execution import ProcessSettings, Relay, create_executor, runner_process, stage
from orchestrator.files import ProjectFiles
from orchestrator.hosts import open_hosts
from orchestrator.hosts.check import Check, Level
from orchestrator.hosts.check.engine import Requirements
from orchestrator.hosts.connection import Connections
from orchestrator.hosts.conversation import names_in, next_word, outcome_in, texts_in
from orchestrator.hosts.relay import relaying
from orchestrator.hosts.ssh import SshHost, socket_of
from tests.conftest import MakeTask
from tests.recording import wait_for
from tests.sshd import pretend_ssh

PROGRAM = inspect.getsource(runner_process) + "\nmain()\n"


def ask(**order: object) -> bytes:
    """What the program answers to an order; its standard input stays open, as over a connection."""
    with start(order) as process:
        assert process.stdout is not None
        return process.stdout.read()


def start(order: dict[str, object]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-I", "-c", PROGRAM]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshHost]:
    """A host without an engine: this machine, in place of what ssh would reach."""
    programs = tmp_path / "programs"
    programs.mkdir()
    pretend_ssh(programs)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    work = str(tmp_path / "there")
    host = Host(connection=Connection.SSH, address="10.0.0.9", python=sys.executable, work_directory=work)
    with Connections({"far": host}) as connections:
        yield SshHost("far", host, connections, Requirements, tmp_path / "here")


def run_through(state: Path, task: MakeTask) -> None:
    directory = state / "campaigns" / "c" / "t"
    made = task()
    stage(made, directory)
    settings = ProcessSettings(Path("/p"), (0,), 1, state / "cache", relay=Relay("far", socket_of(state)))
    create_executor(settings).run(made, directory, Event())


def running(directory: Path, script: str) -> dict[str, object]:
    """The order to run a task."""
    paths = {"directory": str(directory), "code": f"{directory}/code", "log": f"{directory}/supervisor.log"}
    process = {"argv": ["sh", "-c", script], "environment": {"PATH": "/usr/bin:/bin"}, "limit_s": 60}
    made, locks = [f"{directory}/tmp", f"{directory.parent}/cache"], str(directory.parents[2] / "locks")
    return {"do": "run", "command": paths | process, "directories": made, "locks": locks}


def task_directory(campaigns: Path) -> Path:
    """Of a task of the store `mine`, below the campaigns of a host."""
    directory = campaigns / "c" / "t"
    (directory / "code").mkdir(parents=True)
    (directory / "origin.json").write_text('{"store_id": "mine"}')
    return directory


def found(campaigns: Path, store_id: str = "mine") -> bytes:
    """What the program answers that there is of a store."""
    return ask(do="find", campaigns=str(campaigns), store_id=store_id, wait_s=0)


def test_the_program_needs_no_more_than_the_oldest_python_that_hosts_may_have() -> None:
    program = ast.parse(PROGRAM, feature_version=(3, 8))
    imports = [name.name for node in ast.walk(program) if isinstance(node, ast.Import) for name in node.names]
    assert {name.partition(".")[0] for name in imports} <= sys.stdlib_module_names


def test_a_directory_is_run_found_taken_and_removed(tmp_path: Path) -> None:
    campaigns = tmp_path / "campaigns"
    directory = task_directory(campaigns)
    said = ask(**running(directory, f"echo why; printf 'one\\ntwo' >{directory}/records.jsonl; exit 7"))
    assert said.partition(runner_process.GREETING)[2].startswith(b"records 7\none\ntwo")
    document = json.loads(said.rpartition(b"\n")[2])
    assert document == {"exit_code": 7, "ended_because": None, "log_tail": "why\n"}
    assert found(campaigns).endswith(b'[["c", "t"]]')
    assert found(campaigns, "other").endswith(b"\n[]")
    assert b"records 3\ntwo" in ask(do="take", directory=str(directory), offset=4)
    assert ask(do="remove", directories=[str(directory)]).endswith(b"[]")
    assert [path.name for path in campaigns.rglob("*")] == ["c", "cache"]


def test_a_task_that_runs_is_not_fetched_and_one_that_is_gone_is_not_begun(tmp_path: Path) -> None:
    directory = task_directory(tmp_path / "campaigns")
    with start(running(directory, "echo >../begun; cat")) as process:
        wait_for(lambda: (directory / "begun").exists(), 60)
        assert found(tmp_path / "campaigns").endswith(b"runs 3\nc/tended 2\n[]")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    assert found(tmp_path / "campaigns").endswith(b'ended 12\n[["c", "t"]]')
    shutil.rmtree(directory.parent)
    directory.mkdir(parents=True)
    assert b"failed" in ask(**running(directory, "true"))
    assert list(directory.rglob("*")) == []


def test_files_that_cannot_be_placed_are_told_with_the_reason_and_the_mend(far: SshHost, tmp_path: Path) -> None:
    there = PurePosixPath(far.work_directory)
    far.place({"a b/it's": b"whole"}, there)
    assert Path(there, "a b", "it's").read_bytes() == b"whole"
    tar = tmp_path / "programs" / "tar"
    tar.write_text("#!/bin/sh\necho 'tar: x: No space left on device' >&2\necho 'tar: Exiting' >&2\nexit 2\n")
    tar.chmod(0o755)
    with pytest.raises(InfrastructureError, match="No space left on device: make room there, or .*`work_directory:`"):
        far.place({"x": b""}, there)


def test_what_trials_need_there_is_checked(far: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem() -> str:
        finding = far.check(Requirements(), 30).findings[Check.ENGINE]
        assert finding.level is Level.FAILURE
        return str(finding.problem)

    far.work_directory, usual = "/proc/1/nowhere", far.work_directory
    assert "its user may not write into /proc/1/nowhere: give them" in problem()
    far.work_directory = usual
    monkeypatch.setattr("orchestrator.hosts.ssh.SYSTEM_PATH", "/nowhere")
    assert "there is no taskset in" in problem()


def test_what_waits_there_is_fetched_whole_or_stays_there(far: SshHost, tmp_path: Path) -> None:
    there, here = Path(far.work_directory, "campaigns", "c"), ProjectFiles(tmp_path / "project").campaigns / "c"
    for name in ("a", "b"):
        (here / name).mkdir(parents=True)
        (there / name).mkdir(parents=True)
        for file, text in (("origin", '{"store_id": "mine"}'), ("task", "{}")):
            (there / name / f"{file}.json").write_text(text)
        (there / name / "records.jsonl").write_text("measured\n")
    (here / "a" / "records.jsonl").symlink_to("/dev/full")
    (here / "b" / "origin.json").touch()  # as a command leaves it that dies while it opens the file
    known, told = {far.name: far.settings}, list[str]()
    project = ProjectFiles(tmp_path / "project")
    with open_hosts(known, Inventory(known), project) as hosts, hosts.relayed("mine", told.append):
        pass
    assert f"{here}/a/records.jsonl cannot be written on this machine: No space left on device" in "\n".join(told)
    assert (there / "a" / "records.jsonl").read_text() == "measured\n"
    assert (here / "b" / "records.jsonl").read_text() == "measured\n"
    assert json.loads((here / "b" / "origin.json").read_text()) == {"store_id": "mine"}
    assert not (there / "b").exists()


def refused(state: Path, task: MakeTask) -> None:
    """A task for a host that the command which takes tasks here does not know."""
    with (
        Connections({}) as connections,
        relaying({}, connections, state, "mine", 1.0, print),
        pytest.raises(InfrastructureError, match="far or .* is nothing that this command knows"),
    ):
        run_through(state, task)


def test_a_task_is_refused_where_nobody_takes_it(tmp_path: Path, make_task: MakeTask) -> None:
    with pytest.raises(InfrastructureError, match="nobody reaches far any more: No such file"):
        run_through(tmp_path / "nobody", make_task)
    state = tmp_path / ("long" * 40)  # longer than the address of a socket may be
    refused(state, make_task)
    assert not socket_of(state).exists()


def test_a_moment_without_descriptors_ends_nothing(
    tmp_path: Path, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def refuse_once(server: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return accept(server)

    monkeypatch.setattr(socket.socket, "accept", refuse_once)
    refused(tmp_path, make_task)
    assert failures == []


def test_a_word_is_none_until_it_is_whole() -> None:
    assert {next_word(pending) for pending in (b"", b"recor", b"records 3\nab")} == {None}


ENDED: dict[str, object] = {"exit_code": 0, "ended_because": None, "log_tail": "x" * 10_000}
NAMES = ([["..", "t"]], [["c", "a/b"]], [["c"]], "c", [["c", 1]], [["c", ""]])
UNHEARD = (b"Welcome to this host\n", b"records -1\n", b"records 999999999\nx", b"RECORDS 1\nx", b"x" * 50)
NO_ENDS: tuple[dict[str, object], ...] = (
    {"exit_code": 2**40},
    {"exit_code": "0"},
    {"log_tail": None},
    {"ended_because": 1},
)


@pytest.mark.parametrize(
    ("read", "said", "told"),
    [
        *((next_word, said, "it says what nobody understands") for said in UNHEARD),
        *((outcome_in, ENDED | change, "what it tells: ") for change in NO_ENDS),
        *((outcome_in, said, "what it tells: ") for said in (None, [1])),
        # names of others lead nowhere
        *((names_in, said, "none of ours|what it tells: ") for said in NAMES),
        *((texts_in, said, "what it tells: ") for said in NAMES),
    ],
)
def test_what_is_no_answer_is_refused(read: Callable[[object], object], said: object, told: str) -> None:
    assert len(outcome_in(ENDED).log_tail) == 8192
    with pytest.raises(InfrastructureError, match=told):
        read(said)


def test_what_cannot_be_removed_is_told_and_hides_nothing_behind_it(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    said = ask(do="remove", directories=["/proc/self/fdinfo", str(tmp_path / "d")])
    [told] = texts_in(json.loads(said.rpartition(b"\n")[2]))
    assert told.startswith("/proc/self/fdinfo stays there: ")
    assert not (tmp_path / "d").exists()
