"""A damaged file is found also where it has no checksum, and no copy of it gets a fresh one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store, campaign_totals
from runners.contract import Status
from tests.results import CAMPAIGNS, make_store, taxmeter, trial
from tests.storing import names

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "results", *(trial(name, host="statistician") for name in "abc"))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def statistics_of(part: Path, value: bytes) -> list[int]:
    """Where the footer of a part has a value."""
    content = part.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    places = []
    while (start := content.find(value, start)) >= 0:
        places.append(start)
        start += 1
    return places


def damage_statistics(part: Path) -> None:
    flip(part, statistics_of(part, b"statistician")[0])


def damage_page(part: Path) -> None:
    column = pq.read_metadata(part).row_group(0).column(0)
    flip(part, (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1)


DAMAGES = pytest.mark.parametrize("damage", [damage_statistics, damage_page])


def test_a_flipped_bit_in_the_statistics_is_found(store: Store, capsys: Captured) -> None:
    part = store.layout.parts()[0]
    places = statistics_of(part, b"statistician")
    assert len(places) >= 2
    for place in places:
        flip(part, place)
        assert taxmeter("results", "verify", "--results", store.layout.root) == ExitCode.TRIALS_FAILED
        assert f"damaged: {part}: column host, row group 0: its footer says" in capsys.readouterr().out
        flip(part, place)
    assert taxmeter("results", "verify", "--results", store.layout.root) == ExitCode.OK


def test_statistics_of_odd_numbers_are_no_damage(tmp_path: Path) -> None:
    odd = [-0.0, 0.0, None]
    rows = [trial(f"t{number}", latency_sync_median_s=one) for number, one in enumerate(odd)]
    rows.append(trial("none", month=12, latency_sync_median_s=None, samples_sync_s=[]))
    make_store(tmp_path / "results", *rows)
    assert taxmeter("results", "verify", "--results", tmp_path / "results") == ExitCode.OK


@DAMAGES
def test_what_is_damaged_is_not_merged(
    store: Store, tmp_path: Path, capsys: Captured, damage: Callable[[Path], None]
) -> None:
    with store.writer() as writer:
        writer.append([trial("z", month=12, host="statistician")])
    first, second = store.layout.parts()
    damage(second)
    here = make_store(tmp_path / "here", trial("mine"))
    before = here.layout.parts()
    assert taxmeter("results", "merge", store.layout.root, "--results", here.layout.root) == ExitCode.TRIALS_FAILED
    told = capsys.readouterr().err
    assert f"{second} is damaged" in told
    assert len(told.strip().splitlines()) == 1
    assert str(first) not in told
    assert names(here) == ["mine"]
    assert here.layout.parts() == before


@DAMAGES
def test_what_is_damaged_is_neither_exported_nor_pushed(
    store: Store, tmp_path: Path, capsys: Captured, damage: Callable[[Path], None]
) -> None:
    damage(store.layout.parts()[0])
    before = set(tmp_path.iterdir())
    out, place = tmp_path / "out", tmp_path / "pushed"
    for command in (["export", "--output", out], ["export", "--output", f"{out}.csv"], ["push", place.as_uri()]):
        assert taxmeter("results", *command, "--results", store.layout.root) == ExitCode.TRIALS_FAILED
        assert f"{store.layout.parts()[0]} is damaged" in capsys.readouterr().err
    assert set(tmp_path.iterdir()) - {place} == before
    assert not (place / "latest.json").exists()
    assert not list(place.rglob("part-*.parquet"))


@pytest.mark.parametrize("more", [[], ["--anonymise"]])
def test_an_export_of_some_rows_is_no_damage(store: Store, tmp_path: Path, capsys: Captured, more: list[str]) -> None:
    with store.writer() as writer:
        totals = campaign_totals(trial("a")["started_at"], [Status.OK] * 3, rows=3)  # type: ignore[arg-type]
        writer.finish_campaign(CAMPAIGNS[0], **totals)
    output = tmp_path / "some"
    arguments = ("results", "export", "--results", store.layout.root, "--output", output)
    assert taxmeter(*arguments, "--where", "trial_id = 'a'", *more) == ExitCode.OK
    assert taxmeter("results", "verify", "--results", output) == ExitCode.OK
    assert "note: an export of some trials only: 1 campaigns had more rows" in capsys.readouterr().out
    (output / "EXPORT.json").unlink()
    assert taxmeter("results", "verify", "--results", output) == ExitCode.TRIALS_FAILED


def test_rows_that_are_there_twice_are_merged_and_counted_once(store: Store, tmp_path: Path, capsys: Captured) -> None:
    part = store.layout.parts()[0]
    shutil.copy(part, part.with_name("part-copy.parquet"))
    assert taxmeter("results", "merge", store.layout.root, "--results", tmp_path / "here") == ExitCode.OK
    assert "3 rows added, 3 were there already" in capsys.readouterr().out
    assert names(Store.open(tmp_path / "here")) == ["a", "b", "c"]
