"""The code that a campaign's tasks run: copied once, whatever happens to the original."""

import time
import zipfile
from pathlib import Path

import pytest

from orchestrator.execution import INSTALLED, copy_code, keep_code, pack, stage, staging, unpack
from orchestrator.execution.staging import PACKAGE


def test_the_first_code_stays(tmp_path: Path, monkeypatch) -> None:
    installed, kept = tmp_path / "installed", tmp_path / "campaign" / "code"
    copy_code(INSTALLED, installed)
    monkeypatch.setattr(staging, "INSTALLED", installed)
    assert keep_code(kept)
    edited = installed / PACKAGE / "__main__.py"
    first = edited.read_bytes()
    edited.write_bytes(first + b"# edited\n")
    assert not keep_code(kept)
    assert (kept / PACKAGE / "__main__.py").read_bytes() == first
    assert [path.name for path in kept.parent.iterdir()] == ["code"]


def test_a_task_has_the_code_that_it_is_given(make_task, make_trial, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / PACKAGE).mkdir(parents=True)
    (code / PACKAGE / "__init__.py").write_text("of_the_campaign = True\n")
    stage(make_task(make_trial("synthetic-null")), tmp_path / "task", code)
    assert [path.name for path in (tmp_path / "task" / "code" / PACKAGE).iterdir()] == ["__init__.py"]
    assert {path.name for path in (tmp_path / "task").iterdir()} == {"code", "task.json"}


def test_code_that_was_sent_is_the_code_that_was_packed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    copy_code(INSTALLED, source)
    packed = pack(source)
    place = unpack(packed, tmp_path / "host" / "code")
    assert pack(place) == packed
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    (place / PACKAGE / "kept").touch()
    assert unpack(packed, place.parent) == place
    assert (place / PACKAGE / "kept").exists()
    (source / PACKAGE / "__init__.py").write_text("another = True\n")
    assert unpack(pack(source), place.parent) != place


def test_code_is_packed_alike_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, later = pack(INSTALLED), time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert pack(INSTALLED) == packed


def test_two_tasks_that_unpack_at_once_have_the_same_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, host = pack(INSTALLED), tmp_path / "code"
    extract = zipfile.ZipFile.extractall
    faster: list[Path] = []

    def overtaken(archive: zipfile.ZipFile, path: Path) -> None:
        extract(archive, path)
        monkeypatch.setattr(zipfile.ZipFile, "extractall", extract)
        if not faster:
            faster.append(unpack(packed, host))

    monkeypatch.setattr(zipfile.ZipFile, "extractall", overtaken)
    assert [unpack(packed, host)] == faster
    assert pack(faster[0]) == packed
    assert [path.name for path in host.iterdir()] == [faster[0].name]


def test_code_that_cannot_be_put_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(INSTALLED)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(packed, tmp_path / "code")
    assert list((tmp_path / "code").iterdir()) == []
