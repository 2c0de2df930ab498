"""The code that a campaign's tasks run: copied once, whatever happens to the original."""

import io
import os
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from orchestrator.errors import InfrastructureError
from orchestrator.execution import INSTALLED, copy_code, keep_code, pack, pack_files, pack_project, stage, unpack
from orchestrator.execution import task_directory as task_module
from orchestrator.execution.task_directory import PACKAGE, PackedCode
from orchestrator.files import tar_of
from tests.conftest import MakeTask, MakeTrial


def test_the_first_code_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed, kept = tmp_path / "installed", tmp_path / "campaign" / "code"
    copy_code(INSTALLED, installed)
    monkeypatch.setattr(task_module, "INSTALLED", installed)
    assert keep_code(kept)
    edited = installed / PACKAGE / "__main__.py"
    first = edited.read_bytes()
    edited.write_bytes(first + b"# edited\n")
    assert not keep_code(kept)
    assert (kept / PACKAGE / "__main__.py").read_bytes() == first
    assert [path.name for path in kept.parent.iterdir()] == ["code"]


def test_a_task_has_the_code_that_it_is_given(make_task: MakeTask, make_trial: MakeTrial, tmp_path: Path) -> None:
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
    assert names(place.parent) == {place.name}
    file = place / PACKAGE / "__init__.py"
    before = file.stat().st_ino
    assert unpack(packed, place.parent) == place
    assert file.stat().st_ino == before, "whole code is left alone"
    file.write_text("raise SystemExit")
    assert unpack(packed, place.parent) == place
    assert pack(place) == packed, "code that was changed is replaced"
    (source / PACKAGE / "__init__.py").write_text("another = True\n")
    assert unpack(pack(source), place.parent) != place


def test_code_is_packed_alike_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, whole, later = pack(INSTALLED), pack_project(), time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert pack(INSTALLED) == packed
    assert pack_project() == whole


def test_our_own_code_can_be_imported_where_it_was_unpacked(tmp_path: Path) -> None:
    place = unpack(pack_project(), tmp_path)
    told = "orchestrator.__file__, importlib.metadata.version('taxmeter')"
    command = [sys.executable, "-P", "-c", f"import importlib.metadata, orchestrator; print({told})"]
    said = subprocess.check_output(command, env={**os.environ, "PYTHONPATH": str(place)}, text=True)
    assert said.split() == [str(place / "orchestrator" / "__init__.py"), "0.1.0"]


def test_tasks_that_unpack_at_once_have_one_whole_code(tmp_path: Path) -> None:
    packed = pack(INSTALLED)
    with ThreadPoolExecutor(4) as pool:
        [place] = set(pool.map(lambda _: unpack(packed, tmp_path), range(4)))
    assert pack(place) == packed
    assert names(tmp_path) == {place.name}


def test_code_that_cannot_be_put_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "rename", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        unpack(pack(INSTALLED), tmp_path)
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("packed", "told"),
    [
        (replace(pack_files({"runners/x.py": b""}), digest="0" * 64), "the code that was sent is not 000000000000"),
        (pack_files({"../outside": b""}), "outside does not belong into the code"),
        (pack_files({"runners/../../outside": b""}), "outside does not belong into the code"),
    ],
)
def test_an_archive_of_other_code_or_that_writes_elsewhere_is_refused(
    tmp_path: Path, packed: PackedCode, told: str
) -> None:
    with pytest.raises(InfrastructureError, match=told):
        unpack(packed, tmp_path / "code")
    assert [path.name for path in tmp_path.iterdir()] == ["code"]
    assert names(tmp_path / "code") == set()


def test_what_is_for_one_user_is_readable_for_nobody_else() -> None:
    with tarfile.open(fileobj=io.BytesIO(tar_of({"/run/taxmeter/token": b"x"}, (7, 8)))) as archive:
        found = [(member.name, member.mode, member.uid, member.gid) for member in archive]
    assert found == [("run/taxmeter", 0o700, 7, 8), ("run/taxmeter/token", 0o600, 7, 8)]


def names(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir()} - {".lock"}
