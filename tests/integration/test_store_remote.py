"""A store in an object store: pushed, read with our reader and with plain ones, and every way in which that fails.

The service is a real one, OpenStack Swift over HTTP on this machine. `file://` is tested beside it; `gs://` is not.
"""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from orchestrator.errors import ConfigurationError, StoreError
from orchestrator.store import Store
from orchestrator.store.sharing.pushing import push
from orchestrator.store.storage.compaction import compact
from orchestrator.store.storage.objects import differing_contents, snapshot_at
from tests.object_service import ObjectService
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


def test_a_pushed_store_reads_as_the_local_one_does(store: Store, url: str) -> None:
    with store.writer() as writer:
        writer.put_campaign(campaign("c"))
    report = push(store.layout, url)
    assert (report.uploaded, report.present, report.published) == (3, 0, True)
    pushed, local = snapshot_at(url), store.layout.snapshot()
    for table in ("trials", "systems", "environments", "campaigns"):
        assert pushed.dataset(table).to_table().equals(local.dataset(table).to_table())
    assert names(url) == ["a", "b", "c"]
    assert pushed.names("trials") == local.names("trials")


def test_the_list_says_how_much_there_is(store: Store, url: str) -> None:
    push(store.layout, url)
    latest = json.loads(read(url, "latest.json"))
    assert latest["store_id"] == json.loads(store.layout.description.read_text())["store_id"]
    for one, path in zip(latest["tables"]["trials"], store.layout.parts(), strict=True):
        assert one["bytes"] == path.stat().st_size == len(read(url, one["key"]))
    assert [one["rows"] for one in latest["tables"]["trials"]] == [2, 1]


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


def test_a_second_push_uploads_nothing_and_leaves_the_list_alone(store: Store, url: str) -> None:
    push(store.layout, url)
    filesystem, prefix = pafs.FileSystem.from_uri(url)
    before = filesystem.get_file_info(f"{prefix}/latest.json").mtime
    report = push(store.layout, url)
    assert (report.uploaded, report.present, report.replaced, report.published) == (0, 2, (), False)
    assert filesystem.get_file_info(f"{prefix}/latest.json").mtime == before


def test_rows_in_the_journal_go_up_once_they_are_sealed(store: Store, url: str) -> None:
    with store.writer() as writer:
        writer.append([row("d")])
        push(store.layout, url)
        assert names(url) == ["a", "b", "c"]
    assert push(store.layout, url).uploaded == 1
    assert names(url) == ["a", "b", "c", "d"]


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


def test_a_finished_campaign_replaces_its_row(store: Store, url: str) -> None:
    with store.writer() as writer:
        writer.put_campaign(campaign("c"))
        push(store.layout, url)
        writer.finish_campaign("c", planned_trials=4)
    push(store.layout, url)
    assert snapshot_at(url).dataset("campaigns").to_table()["planned_trials"].to_pylist() == [4]


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
from orchestrator.store.sharing.pushing import push
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


def test_a_url_with_credentials_is_refused_and_not_repeated(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="take the credentials out") as caught:
        push(store.layout, "s3://somebody:a-secret@bucket/prefix?region=us-east-1")
    assert "a-secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["s4://bucket/prefix", "s3://", "s3://bucket/prefix?colour=red&region=x", "file://"])
def test_a_url_that_nobody_understands_is_named(store: Store, text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected s3://BUCKET/PREFIX|names no bucket"):
        push(store.layout, text)


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


def test_an_altered_object_is_found_by_its_checksum_and_mended_by_a_push_without_it(store: Store, url: str) -> None:
    push(store.layout, url)
    assert differing_contents(url) == []
    first = listed(url)[0]
    data = bytearray(read(url, first))
    data[200] ^= 1
    write(url, first, bytes(data))
    [said] = differing_contents(url)
    assert (
        said == f"{first} is altered: its checksum is not that of what was pushed; delete it and push the store again"
    )
    filesystem, prefix = pafs.FileSystem.from_uri(url)
    filesystem.delete_file(f"{prefix}/{first}")
    assert push(store.layout, url).uploaded == 1
    assert differing_contents(url) == []


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


@pytest.fixture
def directory_url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'pushed'}"


def test_a_directory_takes_a_push_too(store: Store, directory_url: str) -> None:
    with pytest.raises(ConfigurationError, match="no store was pushed there"):
        snapshot_at(directory_url)
    assert push(store.layout, directory_url).uploaded == 2
    assert names(directory_url) == ["a", "b", "c"]
    assert push(store.layout, directory_url).uploaded == 0
    assert keys(directory_url) == {"latest.json", *listed(directory_url)}
    first = listed(directory_url)[0]
    path = Path(directory_url.removeprefix("file://")) / first
    os.truncate(path, 100)
    with pytest.raises(StoreError, match="has 100 bytes"):
        snapshot_at(directory_url)
    push(store.layout, directory_url)
    assert differing_contents(directory_url) == []
