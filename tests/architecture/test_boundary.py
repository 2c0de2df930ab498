"""Bytes of others come in by `orchestrator.boundary` alone, and text goes to the terminal by one filter."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ORCHESTRATOR = Path(__file__).resolve().parents[2] / "orchestrator"

RAW = {
    "YAML": {"config/documents.py": "the loader", "environments/record.py": "writes"},
    "tarfile.open": {
        "files.py": "writes",
        "environments/identity.py": "with a cap",
        "execution/staging.py": "its digest vouches for what it reads",
    },
    "Console": {},
    "pickle.load": {},
    "pickle.loads": {},
}
"""By raw call the modules that make it, and why these may."""

READERS = (
    "execution/records.py",
    "execution/base.py",
    "scheduling/host_calls.py",
    "scheduling/host_task.py",
    "campaign/driver/leftovers.py",
    "campaign/exchange/reading.py",
    "campaign/stored_plan.py",
    "config/documents.py",
)
"""Modules that read what containers, hosts or strangers wrote."""


def calls(module: Path) -> Iterator[str]:
    return (ast.unparse(node.func) for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call))


@pytest.mark.parametrize("call", RAW)
def test_a_raw_call_stands_where_it_is_guarded_and_nowhere_else(call: str) -> None:
    found = {str(path.relative_to(ORCHESTRATOR)) for path in ORCHESTRATOR.rglob("*.py") if call in calls(path)}
    assert found == set(RAW[call])


@pytest.mark.parametrize("module", READERS)
def test_what_reads_files_of_others_opens_and_parses_nothing_by_itself(module: str) -> None:
    raw = ("open", "json.loads", "json.load")
    methods = (".open", ".read_bytes", ".read_text")
    found = [call for call in calls(ORCHESTRATOR / module) if call in raw or call.endswith(methods)]
    # a lock is opened and not read, and the kernel writes /proc
    assert [call for call in found if call != "os.open" and "/proc/" not in call] == []
