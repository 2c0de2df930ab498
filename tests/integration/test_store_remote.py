"""A store in an object store: pushed, read with our reader and with plain ones, and every way in which that fails.

The service is a real one, OpenStack Swift over HTTP on this machine. `file://` is tested beside it; `gs://` is not.
"""

import json
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from orchestrator.analysis.comparison import compare
from orchestrator.errors import ConfigurationError, ExitCode, StoreError
from orchestrator.store import Store, open_store
from orchestrator.store.push import push
from orchestrator.store.storage.compaction import compact
from orchestrator.store.storage.objects import snapshot_at
from tests.integration import store_example
from tests.object_service import ObjectService
from tests.results import taxmeter
from tests.storing import campaign, row


def add(store: Store, *names: str, month: int = 11) -> None:
    with store.writer() as writer:
        writer.append([row(name, month=month) for name in names])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "results")
    add(store, "a", "b")
    add(store, "c", month=12)
    return store


@pytest.fixture
def bucket(object_service: ObjectService) -> str:
    name = f"lab-{uuid.uuid4().hex[:12]}"
    filesystem, _ = pafs.FileSystem.from_uri(object_service.url(name) + "&allow_bucket_creation=true")
    filesystem.create_dir(name)
    return name


@pytest.fixture
def url(object_service: ObjectService, bucket: str) -> str:
    return str(object_service.url(f"{bucket}/taxmeter"))


def names(url: str) -> list[str]:
    return sorted(snapshot_at(url).dataset("trials").to_table(["trial_id"])["trial_id"].to_pylist())


def read(url: str, key: str) -> bytes:
    filesystem, prefix = pafs.FileSystem.from_uri(url)
    with filesystem.open_input_stream(f"{prefix}/{key}") as stream:
        return bytes(stream.read())


def write(url: str, key: str, data: bytes) -> None:
    filesystem, prefix = pafs.FileSystem.from_uri(url)
    with filesystem.open_output_stream(f"{prefix}/{key}") as stream:
        stream.write(data)


def keys(url: str) -> set[str]:
    filesystem, prefix = pafs.FileSystem.from_uri(url)
    found = filesystem.get_file_info(pafs.FileSelector(prefix, recursive=True))
    return {info.path.removeprefix(prefix + "/") for info in found if info.type == pafs.FileType.File}


def listed(url: str, table: str = "trials") -> list[str]:
    return [one["key"] for one in json.loads(read(url, "latest.json"))["tables"][table]]


def test_a_pushed_store_reads_as_the_local_one_does_and_a_second_push_leaves_it_alone(store: Store, url: str) -> None:
    with store.writer() as writer:
        writer.put_campaign(campaign("c"))
    report = push(store.layout, url)
    assert (report.uploaded, report.present, report.published) == (3, 0, True)
    pushed, local = snapshot_at(url), store.layout.snapshot()
    for table in ("trials", "systems", "environments", "campaigns"):
        assert pushed.dataset(table).to_table().equals(local.dataset(table).to_table())
    assert names(url) == ["a", "b", "c"]
    assert pushed.names("trials") == local.names("trials")
    filesystem, prefix = pafs.FileSystem.from_uri(url)
    before = filesystem.get_file_info(f"{prefix}/latest.json").mtime
    report = push(store.layout, url)
    assert (report.uploaded, report.present, report.replaced, report.published) == (0, 3, (), False)
    assert filesystem.get_file_info(f"{prefix}/latest.json").mtime == before


def test_the_document_reads_a_pushed_store_as_it_says(
    store: Store, url: str, object_service: ObjectService, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    push(store.layout, url)
    text = (project / "docs" / "object-stores.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    code = "\n".join(blocks).replace("s3://lab-results/taxmeter?region=eu-central-1", url)
    service = (
        f'"aws_endpoint_url": "http://{object_service.endpoint}", "aws_allow_http": "true", "aws_region": "us-east-1"'
    )
    code = code.replace('"aws_region": "eu-central-1"', service)
    found: dict[str, Any] = {}
    exec(code, found)
    assert sorted(found["trials"].to_table(columns=["trial_id"])["trial_id"].to_pylist()) == ["a", "b", "c"]
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "3"
    assert re.search(r"bert_base\s+│ eager\s+│\s+3", said)
    assert len(re.findall(r"│ 3 ", said)) == 1, "Polars counts the same"


def test_rows_in_the_journal_go_up_once_they_are_sealed_and_a_finished_campaign_replaces_its_row(
    store: Store, url: str
) -> None:
    with store.writer() as writer:
        writer.put_campaign(campaign("c"))
        writer.append([row("d")])
        push(store.layout, url)
        assert names(url) == ["a", "b", "c"]
        writer.finish_campaign("c", planned_trials=4)
    assert push(store.layout, url).uploaded == 2
    assert names(url) == ["a", "b", "c", "d"]
    assert snapshot_at(url).dataset("campaigns").to_table()["planned_trials"].to_pylist() == [4]


def test_after_a_compaction_only_the_new_parts_go_up(store: Store, url: str) -> None:
    add(store, "d")
    push(store.layout, url)
    before, reader = listed(url), snapshot_at(url)
    compact(store.layout, full=True)
    report = push(store.layout, url)
    assert (report.uploaded, report.present, report.superseded) == (1, 1, 2)
    assert names(url) == ["a", "b", "c", "d"]
    assert len(reader.dataset("trials").to_table()) == 4, "a reader of the earlier list goes on"
    report = push(store.layout, url, prune=True)
    assert (report.pruned, report.superseded) == (0, 2), "within the grace period nothing is deleted"
    report = push(store.layout, url, prune=True, prune_after_s=0)
    assert (report.uploaded, report.pruned, report.superseded) == (0, 2, 0)
    assert keys(url) == {"latest.json", *listed(url)}
    assert not set(before) <= keys(url)
    assert names(url) == ["a", "b", "c", "d"]


def test_a_prefix_belongs_to_one_store(store: Store, url: str, tmp_path: Path) -> None:
    push(store.layout, url)
    other = Store.open(tmp_path / "other")
    add(other, "x")
    with pytest.raises(ConfigurationError, match="belongs to store .* push to another prefix"):
        push(other.layout, url)
    assert names(url) == ["a", "b", "c"]


def test_an_older_copy_does_not_take_rows_away(store: Store, url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(store.layout.root), str(copy)], check=True)
    add(store, "d")
    compact(store.layout, full=True)
    push(store.layout, url)
    with pytest.raises(ConfigurationError, match="has generation 2 of this store, and this copy has 1 only"):
        push(Store.open(copy).layout, url)
    assert names(url) == ["a", "b", "c", "d"]


KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.store.storage.layout import Layout
from orchestrator.store.push import push
push(Layout(Path(sys.argv[1])), sys.argv[2], progress=lambda key, size: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_push_that_is_killed_has_changed_nothing_and_goes_on(store: Store, url: str) -> None:
    push(store.layout, url)
    for number in range(6):
        add(store, f"more-{number}")
    command = [sys.executable, "-c", KILLED, str(store.layout.root), url]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    assert names(url) == ["a", "b", "c"]
    up = len(keys(url)) - 3
    assert 1 <= up <= 6
    report = push(store.layout, url)
    # what was on its way when it was killed may have arrived since
    assert (report.uploaded + report.present, report.replaced) == (8, ())
    assert report.present >= 2 + up
    assert len(names(url)) == 9


def test_a_service_that_dies_in_the_middle_is_one_error(store: Store, url: str, object_service: ObjectService) -> None:
    push(store.layout, url)
    for number in range(6):
        add(store, f"more-{number}")
    with pytest.raises(StoreError, match="cannot .* mend that and run the same command again") as caught:
        push(store.layout, url, progress=lambda key, size: object_service.kill())
    object_service.restart()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    assert names(url) == ["a", "b", "c"]
    push(store.layout, url)
    assert len(names(url)) == 9


@pytest.mark.parametrize("key", ["wrong", None])
@pytest.mark.parametrize("action", [push, lambda layout, url: snapshot_at(url)])
def test_wrong_credentials_are_named_and_not_printed(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch, key: str | None, action: Any
) -> None:
    push(store.layout, url)
    if key is None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    else:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-that-is-wrong")
    with pytest.raises(
        ConfigurationError, match="refused to .* set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    ) as caught:
        action(store.layout, url)
    assert "secret-that" not in str(caught.value)
    assert "test:tester" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s4://bucket/prefix", "expected s3://BUCKET/PREFIX"),
        ("s3://", "expected s3://BUCKET/PREFIX|names no bucket"),
        ("s3://bucket/prefix?colour=red&region=x", "expected s3://BUCKET/PREFIX"),
        ("file://", "expected s3://BUCKET/PREFIX"),
        ("s3://somebody:a-secret@bucket/prefix?region=us-east-1", "take the credentials out"),
    ],
)
def test_a_url_that_is_of_no_use_is_refused_and_no_credentials_repeated(store: Store, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        push(store.layout, text)
    assert "a-secret" not in str(caught.value)


def test_a_missing_bucket_and_a_missing_store_are_told_apart(
    store: Store, url: str, object_service: ObjectService
) -> None:
    absent = object_service.url("no-such-bucket-here/taxmeter")
    for action in (lambda: push(store.layout, absent), lambda: snapshot_at(absent)):
        with pytest.raises(ConfigurationError, match="there is no bucket no-such-bucket-here: create it"):
            action()
    with pytest.raises(ConfigurationError, match="no store was pushed there"):
        snapshot_at(url)


def test_a_truncated_or_missing_object_is_named_and_mended_by_a_push(store: Store, url: str) -> None:
    push(store.layout, url)
    first, second = listed(url)
    write(url, first, read(url, first)[:-100])
    with pytest.raises(StoreError, match=f"{first} has .* bytes, expected .*; push the store again"):
        snapshot_at(url)
    assert push(store.layout, url).replaced == (first,)
    assert names(url) == ["a", "b", "c"]
    filesystem, prefix = pafs.FileSystem.from_uri(url)
    filesystem.delete_file(f"{prefix}/{second}")
    with pytest.raises(StoreError, match=f"{second} is missing"):
        snapshot_at(url)
    push(store.layout, url)
    assert names(url) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "latest.json is damaged"),
        (b"[]", "latest.json is damaged"),
        (b'{"format": 99}', "format 99, and this taxmeter knows 1"),
    ],
)
def test_a_damaged_list_is_named(store: Store, url: str, text: bytes, message: str) -> None:
    push(store.layout, url)
    write(url, "latest.json", text)
    for action in (lambda: push(store.layout, url), lambda: snapshot_at(url)):
        with pytest.raises(StoreError, match=message):
            action()


def test_two_pushes_of_one_store_do_not_meet(store: Store, url: str) -> None:
    def second(key: str, size: int) -> None:
        push(store.layout, url)

    with pytest.raises(StoreError, match="is being pushed by another process"):
        push(store.layout, url, progress=second)
    assert push(store.layout, url).published


def said(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    capsys.readouterr()
    assert taxmeter("results", *command) == ExitCode.OK, capsys.readouterr().err
    return capsys.readouterr().out


def test_a_directory_takes_a_push_too_and_what_is_altered_there_is_found_and_mended(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "pushed"
    url = place.as_uri()
    with pytest.raises(ConfigurationError, match="no store was pushed there"):
        snapshot_at(url)
    local = ("--results", store.layout.root)
    assert re.search(
        r"^2 files \(.* MB\) uploaded(.|\n)*of this store is now at", said(capsys, "push", url, *local), re.M
    )
    again = said(capsys, "push", url, *local, "--prune", "--keep-days", "0")
    assert "0 files (0.00 MB) uploaded, 2 were there already" in again
    assert "of this store was already at" in again
    assert keys(url) == {"latest.json", *listed(url)}
    first = place / listed(url)[0]
    data = bytearray(first.read_bytes())
    data[200] ^= 1
    first.write_bytes(data)
    assert taxmeter("results", "verify", "--results", url) == ExitCode.TRIALS_FAILED
    told = capsys.readouterr().out
    assert f"{first}: its content is not that of its name; delete it and push the store again" in told
    first.unlink()
    assert push(store.layout, url).uploaded == 1
    assert names(url) == ["a", "b", "c"]


def test_every_reader_takes_a_url_and_says_what_it_says_of_the_store(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = tmp_path / "local"
    store_example.make(local)
    said(capsys, "push", url, "--results", local)
    for command in (
        ("ls",),
        ("show", "paper-1"),
        ("coverage", "paper-1"),
        ("sql", "SELECT workload, backend, count(*), sum(batch) FROM trials GROUP BY ALL ORDER BY ALL"),
        ("sql", "SELECT count(*), round(sum(duration_s), 9) FROM samples"),
    ):
        assert said(capsys, *command, "--results", url) == said(capsys, *command, "--results", local)
    for place, name in ((url, "pushed.csv"), (local, "local.csv")):
        said(capsys, "export", "--output", tmp_path / name, "--results", place)
    assert (tmp_path / "pushed.csv").read_text() == (tmp_path / "local.csv").read_text()
    assert "sound: every row was read" in said(capsys, "verify", "--results", url)
    pushed, here = open_store(url), open_store(local)
    chosen = ("status = 'ok' AND batch = 8", ["trial_id", "latency_sync_median_s", "samples_sync_s"])
    expected = here.trials(*chosen).arrow().sort_by("trial_id")
    assert len(expected) == pushed.trials(*chosen).polars().height == len(pushed.trials(*chosen))
    assert pushed.trials(*chosen).arrow().sort_by("trial_id") == expected
    tables = [compare(place, ["cpu", "batch"], ["backend"], where="campaign=paper-1") for place in (pushed, here)]
    assert len(tables[0].entries) > 1
    assert tables[0].arrow() == tables[1].arrow()
    rows = len(here.trials())
    for added, already in ((rows, 0), (0, rows)):
        told = said(capsys, "merge", url, "--results", tmp_path / "other")
        assert f"{added} rows added, {already} were there already" in told
