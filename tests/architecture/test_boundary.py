"""Bytes of others come in by `orchestrator.boundary` alone, nobody listens unseen, text goes out by one filter."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ORCHESTRATOR = Path(__file__).resolve().parents[2] / "orchestrator"

ROW = "texts of rows, which were judged as they came in"
PACKAGE = "files of this package"
OURS = "what this command wrote, or has another program write in a directory of its own"
NAMED = "what the user names is meant, and may be a pipe"
KERNEL = "files of the kernel"
HOST = "runs on hosts, where the standard library is all that there is; what it reads itself is opened as the boundary does"
RECIPE = "recipes of images, which the user runs"
LOCK = "a lock, of which nothing is read"
STORE = "in a store, where `layout` has refused what is no file"
WRITES = "writes"
PACKS = "packs"
SOCKET = "of a socket of the user's own directory, with a cap"

RAW = {
    "YAML": {"config/documents.py": "the loader", "environments/record.py": "writes"},
    "tarfile.open": {
        "files.py": "writes",
        "environments/identity.py": "with a cap",
        "execution/task_directory.py": "its digest vouches for what it reads",
    },
    "Console": {},
    "pickle.load": {},
    "pickle.loads": {},
    "json.load": {},
    "json.loads": {
        "boundary.py": "the loader",
        "analysis/axes.py": ROW,
        "analysis/confounders.py": ROW,
        "analysis/paper/points.py": ROW,
        "analysis/paper/wanted.py": ROW,
        "report/coverage.py": ROW,
        "report/figures/small_print.py": ROW,
        "report/figures/tables.py": ROW,
        "report/page/facts.py": ROW,
        "store/export.py": ROW,
        "store/verification.py": ROW,
        "campaign/stored_plan.py": "validated in the line before",
        "environments/virtualenv.py": OURS,
        "hosts/external_cluster.py": OURS,
        "hosts/calls.py": "a call that we encoded",
        "execution/runner_process.py": HOST,
    },
    ".read_text": {
        "environments/build.py": OURS,
        "environments/resolution.py": RECIPE,
        "hosts/calls.py": PACKAGE,
        "report/page/render.py": PACKAGE,
        "hosts/cluster/reach.py": KERNEL,
        "scheduling/host_calls.py": KERNEL,
        "hosts/cluster/reconcile.py": OURS,
        "hosts/connection/ssh.py": OURS,
        "hosts/provision.py": RECIPE,
        "cli/rows.py": NAMED,
    },
    ".read_bytes": {
        "files.py": PACKAGE,
        "environments/catalogue.py": RECIPE,
        "hosts/cluster/plan.py": RECIPE,
        "hosts/cluster/settings.py": NAMED,
        "hosts/connection/ssh.py": OURS,
        "hosts/external_cluster.py": KERNEL,
        "execution/runner_process.py": KERNEL,
        "report/page/render.py": PACKAGE,
    },
    "open": {
        "boundary.py": "the opener",
        "files.py": "writes",
        "environments/build.py": OURS,
        "execution/fake.py": "writes",
        "execution/runner_process.py": HOST,
    },
    ".open": {
        "cli/tables.py": OURS,
        "environments/build.py": "writes",
        "environments/packages.py": "wheels, of which it takes the digest",
        "environments/transfer.py": "images, of which the identity was read",
        "files.py": "writes",
        "hosts/connection/ssh.py": "writes",
        "hosts/relay.py": "writes",
    },
    "os.open": {
        "boundary.py": "the opener",
        "campaign/control.py": LOCK,
        "execution/relay.py": "a directory, for a short name of a socket",
        "execution/runner_process.py": HOST,
        "files.py": "locks, directories and what it writes",
        "hosts/lock.py": LOCK,
        "scheduling/host_calls.py": "no link, and cuts off what is stored",
        "store/storage/journal.py": "no link, and asks for its lock alone",
        "store/storage/layout.py": "locks, directories and what it writes",
        "store/verification.py": "no link, and asks for its lock alone",
    },
    "pq.": {"store/query/tabular.py": WRITES, "store/storage/parts.py": STORE, "store/verification.py": STORE},
    "pa.ipc.": {
        "store/storage/journal.py": "of bytes that the opener read",
        "store/storage/parts.py": "of what it wrote itself, below the lock of compactions",
    },
    "pa.memory_map": {"store/storage/compaction.py": "that was written just now"},
    "pa.OSFile": {"store/storage/parts.py": "writes, and reads what it wrote itself"},
    "ds.dataset": {
        "store/query/view.py": STORE,
        "store/storage/layout.py": STORE,
        "store/storage/parts.py": STORE,
    },
    "gzip.": {
        "cli/report.py": PACKS,
        "execution/task_directory.py": PACKS,
        "report/page/payload.py": PACKS,
        "report/page/render.py": PACKS,
    },
    ".model_validate_json": {
        "campaign/exchange/manifest.py": "of what the loader took in the lines before",
        "config/documents.py": "of what the loader of YAML took",
    },
    ".validate_json": {
        "boundary.py": "the loader",
        "execution/relay.py": SOCKET,
        "hosts/calls.py": "of what the loader took, or a call that we encoded",
        "hosts/relay.py": SOCKET,
    },
    ".buffer.write": {
        "execution/runner_process.py": "records and words, to the program that started it",
        "hosts/cluster/commands.py": "what our own command wrote, through its own filter",
    },
    "subprocess.run without timeout": {"cli/paper.py": "our own command, which measures for hours"},
    "subprocess.Popen": {
        "execution/runner_process.py": HOST,
        "hosts/cluster/commands.py": "the user's own command, with the user's terminal",
        "hosts/connection/ssh.py": "its users wait with a limit",
        "hosts/external_cluster.py": OURS,
    },
    ".listen": {"hosts/relay.py": "a socket of the user's own directory"},
    ".bind": {"hosts/relay.py": "the same", "hosts/cluster/reach.py": "whether an address is of this machine"},
    "socket.create_server": {
        "hosts/cluster/reach.py": "whether a port is reached, before a cluster takes it",
        "hosts/cluster/reconcile.py": "whether a port is free, before a cluster takes it",
    },
}
"""By raw call the modules that make it, and why these may. A new one belongs into `boundary`, or here with its reason."""

NOT_FILES = ("os.open", "tarfile.open", "Store.open", "webbrowser.open")
"""The first two have lines of their own; the others open no file themselves."""


@cache
def calls() -> dict[str, set[str]]:
    """By module what it calls."""
    return {str(path.relative_to(ORCHESTRATOR)): set(called(path)) for path in sorted(ORCHESTRATOR.rglob("*.py"))}


def called(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call):
            call = ast.unparse(node.func)
            has_limit = call != "subprocess.run" or any(word.arg == "timeout" for word in node.keywords)
            yield call if has_limit else f"{call} without timeout"


def is_that(call: str, raw: str) -> bool:
    """Whether a call is the raw one: with a dot first that method of anything, with a dot last anything of a module."""
    if raw.startswith("."):
        return call.endswith(raw) and call not in NOT_FILES
    return call.startswith(raw) if raw.endswith(".") else call == raw


@pytest.mark.parametrize("raw", RAW)
def test_a_raw_call_stands_where_it_is_guarded_and_nowhere_else(raw: str) -> None:
    assert {module for module, made in calls().items() if any(is_that(call, raw) for call in made)} == set(RAW[raw])
