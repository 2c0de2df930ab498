"""What a host keeps on its own disk until it is stored."""

import time
from pathlib import Path

import pytest

from orchestrator.delivery.spool import DamagedError, Spool, SpoolError


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool" / "store")


def contents(spool: Spool) -> list[bytes | None]:
    return [spool.read(path) for path in spool.pending()]


def test_parcels_are_read_in_the_order_in_which_they_were_put(spool: Spool) -> None:
    assert spool.pending() == []
    for number in range(20):
        spool.put(b"%d" % number)
    assert contents(Spool(spool.directory)) == [b"%d" % number for number in range(20)]


def test_the_order_outlives_a_clock_that_is_set_back(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.put(b"first")
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    spool.put(b"second")
    assert contents(spool) == [b"first", b"second"]


def test_what_is_stored_is_forgotten_and_forgetting_twice_does_no_harm(spool: Spool) -> None:
    path = spool.put(b"x")
    spool.remove(path)
    spool.remove(path)
    assert spool.pending() == []
    assert spool.read(path) is None


def test_a_parcel_that_was_never_finished_is_none(spool: Spool) -> None:
    path = spool.put(b"x")
    path.rename(path.with_suffix(".tmp"))  # as a process leaves it that is killed before the rename
    assert spool.pending() == []


@pytest.mark.parametrize(
    "damage", [b"", b"taxmeter", b"something else altogether, and longer than the header of a file"]
)
def test_a_damaged_file_is_kept_aside_and_named(spool: Spool, damage: bytes) -> None:
    path = spool.put(b"x")
    path.write_bytes(damage)
    with pytest.raises(DamagedError, match=f"damaged; it is kept as {spool.directory}/aside/{path.name}"):
        spool.read(path)
    assert spool.pending() == []
    assert (spool.directory / "aside" / path.name).read_bytes() == damage


def test_a_flipped_bit_is_noticed(spool: Spool) -> None:
    path = spool.put(b"x" * 1000)
    data = bytearray(path.read_bytes())
    data[-500] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="is damaged"):
        spool.read(path)


def test_a_parcel_of_another_schema_is_kept_aside(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.delivery.spool.schema_fingerprint", lambda: b"o" * 32)
    path = spool.put(b"x")
    monkeypatch.undo()
    with pytest.raises(DamagedError, match="written by a taxmeter with another schema"):
        spool.read(path)
    assert len(list((spool.directory / "aside").iterdir())) == 1


def test_a_spool_has_an_end(spool: Spool) -> None:
    small = Spool(spool.directory, max_bytes=3000)
    for _ in range(2):
        small.put(bytes(1000))
    with pytest.raises(SpoolError, match="is full: .* bytes wait there"):
        small.put(bytes(1000))
    assert len(small.pending()) == 2


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="cannot keep a record in .*: Not a directory"):
        Spool(tmp_path / "file" / "spool").put(b"x")


def test_an_empty_spool_goes_and_one_that_still_says_something_stays(spool: Spool) -> None:
    spool.remove_if_empty()
    path = spool.put(b"x")
    spool.remove_if_empty()
    assert spool.pending() == [path]
    kept = spool.set_aside(path)
    spool.remove_if_empty()
    assert kept.exists()
    kept.unlink()
    kept.parent.rmdir()
    spool.remove_if_empty()
    assert not spool.directory.exists()
