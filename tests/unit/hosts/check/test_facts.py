"""What is read about a host on which nothing of ours is installed, and in what two of them differ."""

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import Connection, Host
from orchestrator.errors import InfrastructureError
from orchestrator.hosts import describe_here
from orchestrator.hosts.calls import MARK, answer_of_program, call_program
from orchestrator.hosts.check import differences
from orchestrator.hosts.check.differences import Difference
from orchestrator.hosts.check.engine import EngineQuestion, Requirements, engine_facts
from orchestrator.hosts.check.preflight import PreflightQuestion, preflight_here
from orchestrator.hosts.connection import CommandOutput, Connections
from orchestrator.hosts.ssh import SshHost
from runners.system import SystemRoot, describe_system, fingerprint_of_system

PROGRAM = call_program(describe_system, SystemRoot()).text


class Told(Connections):
    """Each command ends in the same way."""

    def __init__(self, output: CommandOutput) -> None:
        super().__init__({})
        self.output = output

    def run(self, name: str, argv: Sequence[str], timeout_s: float, stdin: str | bytes = b"") -> CommandOutput:
        return self.output


def host(output: CommandOutput, python: str | None = "3.11.2") -> SshHost:
    """A host with this Python and without an engine, on which each command ends in the same way."""
    known = SshHost("h1", Host(connection=Connection.SSH, address="h1"), Told(output), Requirements)
    seen = preflight_here(PreflightQuestion("unix:///nonexistent.sock", (), 60.0))
    known._seen = replace(seen, python=python)
    return known


def test_the_program_is_python_3_8_and_needs_nothing_of_ours(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", "-"]
    done = subprocess.run(command, input=PROGRAM, capture_output=True, text=True, cwd=tmp_path, check=False)
    found = host(CommandOutput(done.returncode, f"Welcome!\n{done.stdout}", done.stderr)).describe(60.0)
    here = json.loads(json.dumps(describe_here().document))
    assert found.read == "over SSH, by the host's own Python 3.11.2"
    assert found.document["hw_id"] == here["hw_id"]
    assert found.document["fingerprint"] == here["fingerprint"]
    assert list(tmp_path.iterdir()) == []
    ast.parse(PROGRAM, feature_version=(3, 8))


@pytest.mark.parametrize(
    ("code", "errors", "expected"),
    [(1, "Traceback\n  x\nImportError: no x\n", "ImportError: no x"), (137, "", "exit code 137 without a message")],
)
def test_a_program_that_fails_is_one_line(code: int, errors: str, expected: str) -> None:
    with pytest.raises(InfrastructureError, match=f"^the fingerprint could not be read: {expected}$"):
        host(CommandOutput(code, "Welcome!\n", errors)).describe(60.0)


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"answer": {"words": 1}}', '{"answer": null}', "{}"])
def test_an_answer_that_is_none_is_one_line(text: str) -> None:
    with pytest.raises(InfrastructureError, match="^what fingerprint_of_system answered there cannot be") as caught:
        answer_of_program(fingerprint_of_system, MARK + text)
    assert "\n" not in str(caught.value)


def test_a_python_that_is_missing_or_old_or_has_not_our_packages_does_not_do() -> None:
    for python, shown in (("3.7.9", "3.7.9"), (None, "missing")):
        expected = f"^python3 is {shown} there, and no container can be started: no engine: there is no socket"
        with pytest.raises(InfrastructureError, match=expected):
            host(CommandOutput(0, "", ""), python).describe(60.0)
    output = CommandOutput(1, "", "Traceback\nModuleNotFoundError: No module named 'pydantic'\n")
    with pytest.raises(InfrastructureError, match="its python3 cannot run it .*'pydantic'.*, and no container can be"):
        host(output).call(engine_facts, EngineQuestion(None, {}, False, 60.0), 60.0)


def fingerprint(model: str, flag: str, cache_bytes: int, *gpus: str) -> dict[str, Any]:
    return {
        "cpu": {"model_name": model, "flags": ["avx", flag], "caches": [{"level": 1, "size_bytes": cache_bytes}]},
        "kernel": {"mitigations": {"meltdown": "Not affected"}},
        "gpus": [{"name": gpu} for gpu in gpus],
        "private": {"host_name": model},
    }


def test_only_what_differs_is_named() -> None:
    first, second = fingerprint("A", "avx2", 32), fingerprint("B", "avx512f", 48, "G")
    assert differences(first, second) == [
        Difference("cpu.model_name", "A", "B"),
        Difference("cpu.flags", "only avx2", "only avx512f"),
        Difference("cpu.caches.0.size_bytes", "32", "48"),
        Difference("gpus.0.name", "-", "G"),
    ]
    assert differences(first, first) == []
