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
    "json.load": {},
    "json.loads": {
        "boundary.py": "the loader",
        "analysis/axes.py": ROW,
        "analysis/confounders.py": ROW,
        "analysis/paper/points.py": ROW,
        "analysis/paper/wanted.py": ROW,
        "report/coverage.py": ROW,
        "report/figures/small_print.py": ROW,
        "report/page/facts.py": ROW,
        "store/schema/tables.py": ROW,
        "store/sharing/exporting.py": ROW,
        "store/verification.py": ROW,
        "campaign/stored_plan.py": "validated in the line before",
        "environments/virtualenv.py": OURS,
        "hosts/external_cluster.py": OURS,
        "hosts/calls.py": "a call that we encoded",
        "execution/supervising.py": HOST,
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
        "execution/supervising.py": KERNEL,
        "report/page/render.py": PACKAGE,
    },
    "open": {
        "boundary.py": "the opener",
        "files.py": "writes",
        "environments/build.py": OURS,
        "execution/fake.py": "writes",
        "execution/supervising.py": HOST,
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
    ".listen": {"hosts/relay.py": "a socket of the user's own directory"},
    ".bind": {"hosts/relay.py": "the same", "hosts/cluster/reach.py": "whether an address is of this machine"},
    "socket.create_server": {
        "hosts/cluster/reach.py": "whether a port is reached, before a cluster takes it",
        "hosts/cluster/reconcile.py": "whether a port is free, before a cluster takes it",
    },
}
"""By raw call the modules that make it, and why these may. A new one belongs into `boundary`, or here with its reason."""

NOT_FILES = ("os.open", "tarfile.open", "Store.open", "webbrowser.open")
"""Locks and what is written; a tar has a line of its own; the others open no file themselves."""


@cache
def calls() -> dict[str, set[str]]:
    """By module what it calls."""
    return {str(path.relative_to(ORCHESTRATOR)): set(called(path)) for path in sorted(ORCHESTRATOR.rglob("*.py"))}


def called(module: Path) -> Iterator[str]:
    return (ast.unparse(node.func) for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call))


def is_that(call: str, raw: str) -> bool:
    return call == raw or (raw.startswith(".") and call.endswith(raw) and call not in NOT_FILES)


@pytest.mark.parametrize("raw", RAW)
def test_a_raw_call_stands_where_it_is_guarded_and_nowhere_else(raw: str) -> None:
    assert {module for module, made in calls().items() if any(is_that(call, raw) for call in made)} == set(RAW[raw])
