"""Stores that somebody else made: what is wrong there is told in one line, and goes no further."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store, open_store
from orchestrator.store.push import push
from orchestrator.store.storage import layout
from tests.conftest import Captured, Patch
from tests.results import CAMPAIGNS, SYSTEM, make_store, taxmeter, told, trial
from tests.storing import forge, names

FAR = datetime(2099, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def theirs(tmp_path: Path) -> Store:
    return make_store(tmp_path / "theirs", trial("a"), trial("b", CAMPAIGNS[1], month=10))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    make_store(tmp_path / "here", trial("mine"))
    return tmp_path / "here"


def failed(capsys: Captured, *command: object) -> str:
    """The one line with which a command fails, whatever its exit code is."""
    capsys.readouterr()
    assert taxmeter(*command) != ExitCode.OK
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def verified(theirs: Store, capsys: Captured) -> str:
    return told(capsys, "results", "verify", "--results", theirs.layout.root, code=ExitCode.TRIALS_FAILED)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"status": "evil"}, "status is 'evil'; expected one of ok, "),
        ({"batch": None}, "batch is null; expected a value"),
        ({"backend_options": "{bad"}, "backend_options is '{bad'; expected a JSON object"),
        ({"started_at": FAR}, "started_at is 2099-01-01 00:00:00+00:00; expected a time from 1970 until tomorrow"),
        ({"campaign_id": "../../here"}, "campaign_id is '../../here'; expected letters, digits and "),
    ],
)
def test_rows_that_no_analysis_can_read_are_found_and_not_merged(
    theirs: Store, here: Path, changes: dict[str, Any], expected: str, capsys: Captured
) -> None:
    forge(theirs.layout.parts()[-1], **changes)
    assert f"trial a, attempt 1: {expected}" in verified(theirs, capsys)
    assert taxmeter("results", "merge", theirs.layout.root, "--results", here) == ExitCode.TRIALS_FAILED
    said = capsys.readouterr()
    assert "1 rows added" in said.out
    assert said.err.startswith(f"not taken: trial a, attempt 1: {expected}")
    assert said.err.count("\n") == 1
    assert names(Store.open(here)) == ["b", "mine"]
    assert taxmeter("results", "verify", "--results", here) == ExitCode.OK


@pytest.mark.parametrize(
    ("table", "changes", "expected"),
    [
        ("campaigns", {"started_at": FAR}, [f"not taken: campaign {name}: started_at is 2099" for name in CAMPAIGNS]),
        (
            "campaigns",
            {"sweep_document": "another"},
            [f"campaign {name} has another sweep_document" for name in CAMPAIGNS],
        ),
        ("systems", {"fingerprint": '{"cpu": ' * 3000}, [f"system {SYSTEM}: fingerprint is "]),
    ],
    ids=["of the far future", "another one than here", "no system"],
)
def test_a_campaign_or_system_that_is_none_is_refused_with_its_rows_and_changes_nothing_here(
    theirs: Store, here: Path, table: str, changes: dict[str, Any], expected: list[str], capsys: Captured
) -> None:
    for path in list((theirs.layout.current / table).iterdir()):
        forge(path, **changes)
    if table == "systems":
        assert expected[0] in verified(theirs, capsys)
    before = told(capsys, "results", "show", "--results", here)
    assert taxmeter("results", "merge", theirs.layout.root, "--results", here) == ExitCode.TRIALS_FAILED
    said = capsys.readouterr().err
    assert [part for part in expected if part not in said] == []
    assert names(Store.open(here)) == ["mine"]
    assert told(capsys, "results", "show", "--results", here) == before


def pipe_as_description(there: layout.Layout) -> None:
    there.description.unlink()
    os.mkfifo(there.description)


COMMANDS = [["ls"], ["show"], ["sql", "SELECT count(*) FROM trials"], ["verify"], ["compact"], ["merge", "{}"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    "attack",
    [
        lambda layout: os.mkfifo(layout.parts()[0].with_name("part-0.parquet")),
        lambda layout: os.mkfifo(layout.current / "systems" / "x.parquet"),
        lambda layout: (layout.current / "campaigns" / "x.parquet").symlink_to("/etc/passwd"),
        lambda layout: (layout.current / "trials" / "month=2026-01").symlink_to("/etc"),
        pipe_as_description,
    ],
    ids=["pipe", "pipe-of-systems", "link", "link-to-a-directory", "pipe-as-description"],
)
def test_what_is_no_file_is_named_and_not_opened(
    theirs: Store, tmp_path: Path, command: list[str], attack: Callable[..., None], capsys: Captured
) -> None:
    attack(theirs.layout)
    words = [word.format(theirs.layout.root) for word in command]
    place = tmp_path / "new" if command[0] == "merge" else theirs.layout.root
    said = failed(capsys, "results", *words, "--results", place)
    assert "is no regular file" in said


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 1, "schema_version": Infinity, "store_id": "x"}',
        '{"format": 1, "schema_version": 1e999, "store_id": "x"}',
        '{"format": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"format": 1, "schema_version": 1, "store_id": "../x"}',
        '{"format": 1, "schema_version": 1, "store_id": ["x"]}',
        '{"format": 1, "schema_version": 1, "store_id": "\\ud800"}',
        '{"format": 1.5, "schema_version": 1, "store_id": "x"}',
        '[1, 1, "x"]',
        "x" * 2**17,
        "",
        '{"format": 1}',
    ],
    ids=["infinity", "overflow", "deep", "path", "list", "surrogate", "float", "array", "long", "empty", "short"],
)
def test_a_description_of_a_stranger_is_one_line(theirs: Store, text: str, capsys: Captured) -> None:
    theirs.layout.description.write_text(text)
    for command in ("ls", "compact"):
        said = failed(capsys, "results", command, "--results", theirs.layout.root)
        assert "STORE.json" in said
        assert "delete it, and the next sweep writes it" in said
    theirs.layout.description.unlink()
    assert names(theirs) == ["a", "b"]


def test_a_month_with_a_quote_is_no_sql(theirs: Store, capsys: Captured) -> None:
    part = theirs.layout.parts()[0]
    month = part.parent.with_name("month=2026'; DROP VIEW trials; --")
    part.parent.rename(month)
    said = verified(theirs, capsys)
    assert f"damaged: {month / part.name}: does not belong there" in said
    assert "2 trials" in said
    assert taxmeter("results", "compact", "--results", theirs.layout.root) == ExitCode.OK


def listed(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return changed


def first(**fields: object) -> Callable[[str], str]:
    return listed(lambda latest: latest["tables"]["trials"][0].update(fields))


@pytest.mark.parametrize(
    "attack",
    [
        first(key="../private.parquet"),
        first(key="parts/trials/../../private.parquet"),
        first(key="parts/systems/x.parquet"),
        first(bytes=-1),
        first(bytes=1e300),
        listed(lambda latest: latest.update(generation=float("inf"))),
        listed(lambda latest: latest.update(store_id="../x")),
        listed(lambda latest: latest.update(superseded={"parts/x": "soon"})),
        lambda text: text.replace("{", '{"a":' + "[" * 50_000 + "]" * 50_000 + ",", 1),
    ],
)
def test_a_list_of_objects_leads_to_no_other_files(
    theirs: Store, tmp_path: Path, attack: Callable[[str], str], capsys: Captured
) -> None:
    place = tmp_path / "public" / "lab"
    place.mkdir(parents=True)
    url = place.as_uri()
    push(theirs.layout, url)
    shutil.copy(theirs.layout.parts()[0], place.parent / "private.parquet")
    assert len(open_store(url).trials().arrow()) == 2
    latest = place / "latest.json"
    latest.write_text(attack(latest.read_text()))
    assert "latest.json" in failed(capsys, "results", "ls", "--results", url)


def test_a_query_finds_no_directory_that_somebody_prepared(theirs: Store) -> None:
    places = set()
    for _ in range(2):
        with open_store(theirs.layout.root).connect() as connection:
            places.add(connection.sql("SELECT current_setting('temp_directory')").fetchall()[0][0])
    assert len(places) == 2
    assert not any(Path(place).exists() for place in places)


def test_nobody_else_can_open_the_locks(theirs: Store, tmp_path: Path) -> None:
    assert taxmeter("results", "compact", "--results", theirs.layout.root) == ExitCode.OK
    push(theirs.layout, (tmp_path / "pushed").as_uri())
    modes = {path.name: path.stat().st_mode & 0o777 for path in theirs.layout.root.glob("lock*")}
    assert modes == dict.fromkeys(("lock", "lock.compaction", "lock.push"), 0o600)


def test_who_waits_for_a_lock_is_told_and_not_for_ever(
    theirs: Store, monkeypatch: Patch, caplog: pytest.LogCaptureFixture, capsys: Captured
) -> None:
    monkeypatch.setattr(layout, "LOCK_NOTICE_S", 0.05)
    monkeypatch.setattr(layout, "LOCK_LIMIT_S", 0.2)
    with theirs.layout.lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = failed(capsys, "results", "compact", "--results", theirs.layout.root)
    assert f"another process has held {theirs.layout.lock}" in said
    [noted] = caplog.messages
    assert "waiting for another process that holds its lock" in noted
    assert taxmeter("results", "compact", "--results", theirs.layout.root) == ExitCode.OK
