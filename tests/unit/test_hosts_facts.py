"""The fingerprint of a host on which nothing is installed, and in what two of them differ."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.checking.container import Seen
from orchestrator.hosts.checking.differences import Difference, differences, flattened
from orchestrator.hosts.checking.facts import is_new_enough, local_facts, parse_facts
from orchestrator.hosts.checking.program import facts_program


def test_the_program_needs_nothing_of_ours(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-"],
        input=facts_program(),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    document = parse_facts("h1", Seen(done.returncode, done.stdout, done.stderr))
    here = json.loads(json.dumps(local_facts().document))
    assert document["hw_id"] == here["hw_id"]
    assert document["fingerprint"] == here["fingerprint"]
    assert list(tmp_path.iterdir()) == []


def test_the_program_is_python_3_8() -> None:
    ast.parse(facts_program(), feature_version=(3, 8))


def test_a_program_that_fails_is_one_line() -> None:
    with pytest.raises(InfrastructureError, match="h1: the fingerprint could not be read: ImportError: no ctypes"):
        parse_facts("h1", Seen(1, "Welcome!\n", "Traceback\n  x\nImportError: no ctypes\n"))
    with pytest.raises(InfrastructureError, match="exit code 137 without a message"):
        parse_facts("h1", Seen(137, "", ""))


@pytest.mark.parametrize(
    ("version", "expected"), [("3.8.0", True), ("3.11.2", True), ("3.6.8", False), ("2.7.18", False), (None, False)]
)
def test_an_old_python_does_not_do(version: str | None, expected: bool) -> None:
    assert is_new_enough(version) is expected


ONE = {
    "cpu": {"model_name": "A", "flags": ["avx", "avx2"], "caches": [{"level": 1, "size_bytes": 32}]},
    "kernel": {"mitigations": {"meltdown": "Not affected"}},
    "gpus": [],
    "private": {"host_name": "h1"},
}
OTHER = {
    "cpu": {"model_name": "B", "flags": ["avx", "avx512f"], "caches": [{"level": 1, "size_bytes": 48}]},
    "kernel": {"mitigations": {"meltdown": "Not affected"}},
    "gpus": [{"name": "G"}],
    "private": {"host_name": "h2"},
}


def test_nested_keys_become_dotted_ones() -> None:
    assert flattened(ONE)["cpu.caches.0.size_bytes"] == 32
    assert flattened(ONE)["cpu.flags"] == ("avx", "avx2")


def test_only_what_differs_is_named() -> None:
    assert differences(ONE, OTHER) == [
        Difference("cpu.model_name", "A", "B"),
        Difference("cpu.flags", "only avx2", "only avx512f"),
        Difference("cpu.caches.0.size_bytes", "32", "48"),
        Difference("gpus.0.name", "-", "G"),
    ]
    assert differences(ONE, ONE) == []
