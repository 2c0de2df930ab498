"""Writers and compactions that are killed at any moment, while plain readers read all the time."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.store import Store
from orchestrator.store.storage.compaction import compact
from orchestrator.store.storage.generations import current_number
from orchestrator.store.storage.seal import recover
from tests.killing import CHILDREN, with_duckdb, with_polars, with_pyarrow
from tests.storing import row

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
READERS = {"pyarrow": with_pyarrow, "duckdb": with_duckdb, "polars": with_polars}
ROLES = ("writer", "writer", "compactor")


def start(work: Path, kind: str, root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.killing", kind, str(root), str(work)]
    with (work / f"{kind}.err").open("w") as errors:
        return subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "phases").write_bytes(bytes(CHILDREN))
    return tmp_path


@pytest.fixture
def store(work: Path) -> Store:
    store = Store.open(work / "results")
    with store.writer() as writer:
        writer.append([row("first")])
    return store


@pytest.fixture
def readers(work: Path, store: Store) -> Iterator[dict[str, subprocess.Popen[str]]]:
    started = {name: start(work, name, store.layout.root) for name in READERS}
    yield started
    for reader in started.values():
        reader.kill()
        reader.communicate()


@pytest.fixture
def nursery(work: Path, store: Store) -> Iterator[subprocess.Popen[str]]:
    with start(work, "nursery", store.layout.root) as process:
        yield process


def bear(nursery: subprocess.Popen[str], role: str, number: int) -> int:
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(f"{role} {number}\n")
    nursery.stdin.flush()
    return int(nursery.stdout.readline())


def kill(child: int, work: Path) -> None:
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pytest.fail(f"a process died by itself: {(work / 'nursery.err').read_text()}")


def acknowledged(work: Path) -> set[str]:
    """Rows that were acknowledged until now; a last line without its end was cut off and does not count."""
    texts = [path.read_text() for path in work.glob("acknowledged-*")]
    return {name for text in texts for name in text[: text.rfind("\n") + 1].split()}


@pytest.mark.parametrize("kills", [40, pytest.param(200, marks=pytest.mark.long)])
def test_kill_dash_nine_loses_nothing_repeats_nothing_and_disturbs_nobody(
    work: Path, store: Store, nursery: subprocess.Popen[str], readers: dict[str, subprocess.Popen[str]], kills: int
) -> None:
    chance = random.Random(5)
    struck: Counter[str] = Counter()
    alive = {slot: (bear(nursery, role, slot), slot) for slot, role in enumerate(ROLES)}
    for count in range(kills):
        time.sleep(chance.random() * 0.2)
        slot = chance.randrange(len(ROLES))
        child, number = alive[slot]
        kill(child, work)
        struck[chr((work / "phases").read_bytes()[number])] += 1
        number = len(ROLES) + count
        alive[slot] = (bear(nursery, ROLES[slot], number), number)
        if count % 10 == 9:
            safe = acknowledged(work)
            live = store.trials(["trial_id"])["trial_id"].to_pylist()
            assert safe <= set(live)
            assert len(live) == len(set(live))
    for child, _ in alive.values():
        kill(child, work)
    work.joinpath("stop").touch()
    seen = {name: json.loads(reader.communicate(timeout=60)[0]) for name, reader in readers.items()}
    assert {name: one["problems"] for name, one in seen.items()} == {name: [] for name in READERS}
    # Each was reading all the time, and saw the store grow.
    assert min(one["reads"] for one in seen.values()) > 5
    assert min(one["rows"] for one in seen.values()) > kills / 2
    assert min(struck[phase] for phase in "wsc") > 0, struck
    assert work.joinpath("nursery.err").read_text() == ""
    recover(store.layout)
    safe = acknowledged(work)
    assert len(safe) > kills
    for reader in READERS.values():
        rows = reader(str(store.layout.current))
        assert safe <= set(rows)
        assert len(rows) == len(set(rows))
    assert store.layout.segments() == []
    compact(store.layout, full=True)
    assert len(store.layout.parts()) == 3  # one a month
    assert list(store.layout.temporary.iterdir()) == []
    # Old generations went all the while; forty kills do not take long enough for the first to be old.
    assert kills < 200 or len(list(store.layout.generations.iterdir())) < current_number(store.layout)
    print(json.dumps({"struck": struck, "readers": seen, "acknowledged": len(safe)}))
