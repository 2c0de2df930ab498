"""Tasks for hosts without engines: what crosses the socket, what a host may say, and the program that is sent there."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from orchestrator.errors import InfrastructureError
from orchestrator.execution import ProcessSettings, Relay, create_executor, stage, supervising
from orchestrator.hosts.connection import Connections
from orchestrator.hosts.conversation import names_in, next_word, outcome_in
from orchestrator.hosts.relay import relaying
from orchestrator.hosts.ssh import socket_of
from tests.conftest import MakeTask

PROGRAM = inspect.getsource(supervising) + "\nmain()\n"


def ask(order: dict[str, object]) -> bytes:
    """What the program answers to an order; its standard input stays open, as over a connection."""
    command = [sys.executable, "-I", "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        return process.stdout.read()


def run_through(state: Path, task: MakeTask) -> None:
    directory = state / "campaigns" / "c" / "t"
    made = task()
    stage(made, directory)
    settings = ProcessSettings(Path("/p"), (0,), 1, state / "cache", relay=Relay("far", socket_of(state)))
    create_executor(settings).run(made, directory, Event())


def test_the_program_needs_no_more_than_the_oldest_python_that_hosts_may_have() -> None:
    ast.parse(PROGRAM, feature_version=(3, 8))
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(ast.parse(PROGRAM))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= sys.stdlib_module_names


def test_a_directory_is_run_found_taken_and_removed(tmp_path: Path) -> None:
    campaigns = tmp_path / "campaigns"
    directory = campaigns / "c" / "t"
    (directory / "code").mkdir(parents=True)
    (directory / "origin.json").write_text('{"store_id": "mine"}')
    script = f"echo why; printf 'one\\ntwo' >{directory}/records.jsonl; exit 7"
    command = {
        "argv": ["sh", "-c", script],
        "directory": str(directory),
        "code": str(directory / "code"),
        "log": str(directory / "supervisor.log"),
        "environment": {"PATH": "/usr/bin:/bin"},
        "limit_s": 60,
    }
    said = ask({"do": "run", "command": command, "directories": [], "locks": str(tmp_path / "locks")})
    assert said.partition(supervising.GREETING)[2].startswith(b"records 7\none\ntwo")
    document = json.loads(said.rpartition(b"\n")[2])
    assert document == {"exit_code": 7, "ended_because": None, "log_tail": "why\n"}
    assert ask({"do": "find", "campaigns": str(campaigns), "store_id": "mine"}).endswith(b'[["c", "t"]]')
    assert ask({"do": "find", "campaigns": str(campaigns), "store_id": "other"}).endswith(b"\n[]")
    assert b"records 3\ntwo" in ask({"do": "take", "directory": str(directory), "offset": 4})
    assert ask({"do": "remove", "directories": [str(directory)]}).endswith(b"null")
    assert not campaigns.exists()


def test_a_task_is_refused_where_nobody_takes_it(tmp_path: Path, make_task: MakeTask) -> None:
    with pytest.raises(InfrastructureError, match="nobody reaches far any more: No such file"):
        run_through(tmp_path / "nobody", make_task)
    state = tmp_path / ("long" * 40)  # longer than the address of a socket may be
    with (
        Connections({}) as connections,
        relaying({}, connections, state, "mine", 1.0, print),
        pytest.raises(InfrastructureError, match="far or .* is nothing that this command knows"),
    ):
        run_through(state, make_task)
    assert not socket_of(state).exists()


@pytest.mark.parametrize(
    "said", [b"Welcome to this host\n", b"records -1\n", b"records 999999999\nx", b"RECORDS 1\nx", b"x" * 50]
)
def test_what_is_no_answer_is_refused(said: bytes) -> None:
    with pytest.raises(InfrastructureError, match="it says what nobody understands"):
        next_word(said)


@pytest.mark.parametrize("change", [{"exit_code": 2**40}, {"exit_code": "0"}, {"log_tail": None}, {"ended_because": 1}])
def test_how_a_task_ended_is_validated(change: dict[str, object]) -> None:
    ended = {"exit_code": 0, "ended_because": None, "log_tail": "x" * 10_000}
    assert len(outcome_in(ended).log_tail) == 8192
    for answer in (ended | change, None, [1]):
        with pytest.raises(InfrastructureError, match="what it tells cannot be read"):
            outcome_in(answer)


@pytest.mark.parametrize("found", [[["..", "t"]], [["c", "a/b"]], [["c"]], "c", [["c", 1]], [["c", ""]]])
def test_names_of_others_lead_nowhere(found: object) -> None:
    with pytest.raises(InfrastructureError, match="none of ours|cannot be read"):
        names_in(found)
