"""Whoever measures on a host has it for itself, whichever cluster it is of."""

import errno
import fcntl
import os
import stat
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.config import Connection, Host, Inventory
from orchestrator.errors import InfrastructureError, NoUsableHostError
from orchestrator.files import ProjectFiles
from orchestrator.hosts import open_hosts
from orchestrator.hosts.lock import (
    HostLock,
    LockHolder,
    SweepUnderWayError,
    project_to_ourselves,
    this_machine_to_ourselves,
)

SOON_S = 20.0
"""More than a lock takes to pass on, also on a busy machine."""
NEVER_S = 0.3


def test_one_at_a_time_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    lock = HostLock(directory=tmp_path / "locks")
    with ExitStack() as first:
        assert first.enter_context(lock.hold()).wait(SOON_S)
        with lock.hold() as second:
            assert not second.wait(NEVER_S)
            first.close()
            # Whoever has just had it asks again at once, and still comes after the one that waited.
            with lock.hold() as again:
                assert second.wait(SOON_S)
                assert not again.wait(NEVER_S)
    with lock.hold() as last:
        assert last.wait(SOON_S)
    (tmp_path / "file").write_text("in the place of a directory")
    with pytest.raises(InfrastructureError, match="file/host cannot be locked"):
        HostLock(directory=tmp_path / "file").hold()


def test_parts_of_a_host_are_held_side_by_side_but_neither_beside_nor_before_all_of_it(tmp_path: Path) -> None:
    gpus, host = [HostLock(f"gpu-{number}", tmp_path) for number in range(3)], HostLock(directory=tmp_path)
    with ExitStack() as parts:
        for part in gpus[:2]:
            assert parts.enter_context(part.hold()).wait(SOON_S)
        with gpus[1].hold() as same, host.hold() as whole:
            assert not same.wait(NEVER_S)
            assert not whole.wait(NEVER_S)
        with host.hold() as whole:
            assert not whole.wait(NEVER_S)
            with gpus[2].hold() as late:
                assert not late.wait(NEVER_S), "who waits for all of a host is not overtaken"
                parts.close()
                assert whole.wait(SOON_S)
                assert not late.wait(NEVER_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root can")
@pytest.mark.parametrize("first", [0, 65534])
def test_users_lock_what_others_made(first: int) -> None:
    """In the way of `HostLock`, in a directory like /tmp: the kernel has rules of its own for files of others there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        Path(parent).chmod(0o1777)
        lock = HostLock("gpu-1", Path(parent) / "locks")
        for user in (first, 65534 - first):
            child = os.fork()
            if child == 0:
                os.umask(0o077)
                os.setresuid(user, user, user)
                with lock.hold() as held:
                    os._exit(0 if held.wait(SOON_S) else 1)
            assert os.waitpid(child, 0)[1] == 0
        assert stat.S_IMODE(lock.directory.stat().st_mode) == 0o1777
        assert stat.S_IMODE(lock.path.stat().st_mode) == 0o644


def test_files_that_are_held_are_kept_from_those_who_clear_tmp(tmp_path: Path) -> None:
    """systemd-tmpfiles leaves a directory alone that it cannot lock."""
    directory = os.open(tmp_path, os.O_RDONLY)
    with HostLock(directory=tmp_path).hold() as first:
        assert first.wait(SOON_S)
        # Asked only now: which of two that wait comes first is nobody's promise
        with HostLock(directory=tmp_path).hold(), pytest.raises(BlockingIOError):
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(directory, fcntl.LOCK_EX)
    os.close(directory)


def test_a_project_has_one_sweep_wherever_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["orchestrator.hosts.lock"], "HOST_LOCK", HostLock(directory=tmp_path / "locks"))
    here = {"here": Host(connection=Connection.LOCAL)}
    other = {"other": Host(connection=Connection.SSH, address="10.0.0.9")}
    files, expected = ProjectFiles(tmp_path), "another sweep of this project runs"
    with open_hosts(here, Inventory(here), files) as first, open_hosts(other, Inventory(other), files) as again:
        with first.undisturbed(), pytest.raises(NoUsableHostError, match=expected), again.undisturbed():
            pytest.fail("a second sweep was let in")
        with again.undisturbed():
            pass


def test_who_has_a_lock_is_told_as_long_as_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["orchestrator.hosts.lock"], "HOST_LOCK", HostLock(directory=tmp_path))
    killed = tmp_path / "host.holder-killed"
    killed.write_text('{"project": "/killed", "pid": 1}')
    os.mkfifo(tmp_path / "host.holder-pipe")
    error = SweepUnderWayError("runs", tmp_path / "host")
    assert (error.holder, killed.exists()) == (None, True)
    with this_machine_to_ourselves(tmp_path):
        error = SweepUnderWayError("runs", tmp_path / "host")
        assert error.holder == LockHolder(str(tmp_path), os.getpid())
        assert f"project {tmp_path}, process {os.getpid()}" in str(error)
    assert not list(tmp_path.glob("host.holder-*"))


def test_a_lock_of_a_project_is_open_for_writing_and_named_if_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, _: int) -> None:
        """As over NFS, which turns it into a lock of bytes."""
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", flock)
    with project_to_ourselves(tmp_path, tmp_path):
        pass
    (tmp_path / "file").touch()
    expected = "file/locks/sweep cannot be locked: "
    with pytest.raises(NoUsableHostError, match=expected), project_to_ourselves(tmp_path, tmp_path / "file"):
        pass
