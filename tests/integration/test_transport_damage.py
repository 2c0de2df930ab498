"""Records and directories that are damaged, late or barred: what is told of them, and that nothing else suffers."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.campaign.resume import ResumePolicy
from orchestrator.scheduling import Acknowledgement, Disposal, acknowledge, remove_directories, run_on_host
from tests.integration.test_transport import directories, killed, plain
from tests.recording import line_of, with_first
from tests.scripted_campaign import Frozen, Kept, Lab, ready, sweep


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_what_cannot_be_read_holds_nothing_else_up(lab: Lab) -> None:
    killed(lab)
    [directory] = directories(lab)
    unreadable = directory.with_name("a-first")
    shutil.copytree(directory, unreadable)
    (unreadable / "lock").mkdir()  # no file of a runner's, as one of another user is none
    again = Kept()
    lab.run(sweep(rounds=1), again, [ready("h1")])
    assert again.submitted == []
    assert lab.rows() == [("h1", "ok", 1)] * 2
    assert f"{unreadable / 'lock'} cannot be read: Is a directory; the records there stay" in lab.notices()
    assert (unreadable / "records.jsonl").exists()


@pytest.mark.parametrize("damage", ["bit", "environment", "trial", "task", "value", "text", "name"])
def test_damage_in_a_leftover_is_told_and_kept_and_the_rest_is_stored(lab: Lab, damage: str) -> None:
    killed(lab)
    [directory] = directories(lab)
    path = directory / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "bit":
        lines[2] = lines[2].replace(b'"ok"', b'"oK"')
    elif damage == "environment":
        lines[0] = lines[0].replace(b'"fake"', b'"fbke"')
    elif damage == "trial":
        lines.append(line_of(json.dumps({**plain(lines[2]), "trial_id": "unknown"})))
    elif damage == "value":
        lines[2] = line_of(json.dumps({**plain(lines[2]), "started_at_ns": 2**70}))
    elif damage == "text":
        # as os.fsdecode gives a byte that is no UTF-8
        lines[2] = line_of(json.dumps({**plain(lines[2]), "reason": "no such file: caf\udce9"}))
    elif damage == "name":
        lines[0] = with_first(lines[0], b'"python"', b'"caf\\u00e9"')
    else:
        (directory / "task.json").write_text("[]")
    path.write_bytes(b"".join(lines))
    lab.run(sweep(rounds=1), Kept(), [ready("h1")])
    assert [row[:2] for row in lab.rows()] == [("h1", "ok")] * 2
    assert None not in lab.store.trials(["runner_sha256"])["runner_sha256"].to_pylist()
    assert f"{directory}: " in lab.notices()
    assert "its records are kept there" in lab.notices()
    assert (directory / "records.refused.jsonl").read_bytes() == b"".join(lines)
    # It is told once, and not cleared by anybody but a person.
    lab.run(sweep(rounds=1), Kept(), [ready("h1")])
    assert str(directory) not in lab.notices()
    assert directory.exists()


def test_what_a_host_that_was_given_up_measured_is_stored_and_not_measured_again(lab: Lab) -> None:
    """A second resume changes nothing."""
    silent, hosts = Frozen(), [ready("h1", lab.files.root / "there")]
    silent.frozen, silent.absent_until = {"h1"}, lambda: False
    lab.run(sweep(rounds=1), silent, hosts)
    given_up = lab.rows()
    assert [row[1] for row in given_up] == ["infrastructure_error"] * 3, "one was tried twice"
    list(run_on_host(silent.submitted[0]))  # what the host did meanwhile
    for _ in range(2):
        again = Kept()
        lab.run(sweep(rounds=1), again, hosts, policy=ResumePolicy.ALWAYS)
        assert again.submitted == []
        assert lab.rows() == [*given_up, ("h1", "ok", 2), ("h1", "ok", 3)]
        assert "say different things" not in lab.notices()


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task directory with records."""
    directory = tmp_path / "campaign" / "task"
    directory.mkdir(parents=True)
    for name in ("records.jsonl", "task.json"):
        (directory / name).write_text("text")
    return directory


def test_records_that_are_stored_go_before_what_explains_them(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(path: Path) -> None:
        raise OSError("the host dies here")

    monkeypatch.setattr(shutil, "rmtree", dies)
    list(acknowledge([Acknowledgement(task, 4, Disposal.REMOVE)]))
    assert not (task / "records.jsonl").exists()
    assert (task / "task.json").exists()


@contextmanager
def barred(directory: Path) -> Iterator[None]:
    """A directory of another user; root is nobody meanwhile, since nothing bars root."""
    is_root = os.geteuid() == 0
    directory.chmod(0)
    os.seteuid(65534 if is_root else os.geteuid())
    try:
        yield
    finally:
        os.seteuid(0 if is_root else os.geteuid())
        directory.chmod(0o700)


def test_what_cannot_be_looked_into_is_told_and_stays(task: Path) -> None:
    with barred(task):
        [problem] = remove_directories([task.parent])
    assert problem == f"{task.parent} cannot be removed: Permission denied"
    assert task.exists()
