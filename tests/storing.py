"""Rows for tests of the store, what plain readers make of them, and deaths at any step."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from orchestrator.store import Row, Store, campaign_row
from orchestrator.store.storage.parts import file_name


def row(name: str, attempt: int = 1, status: str = "ok", month: int = 11, **more: object) -> Row:
    """A row of `trials`."""
    return {
        "trial_id": name, "attempt": attempt, "status": status, "started_at": datetime(2025, month, 20, tzinfo=UTC),
        "trial_key": "k", "campaign_id": "c", "round": 1, "order": 1, "replicate": 0, "workload": "bert_base",
        "batch": 1, "backend": "eager", "backend_options": "{}", "dtype": "float32", "device": "cpu", "threads": 2,
        "seed": 0, "protocol": "{}", "method_version": 1, "contract_version": 1, "environment": "cpu",
        "samples_sync_s": [0.25, 0.5], **more,
    }  # fmt: skip


def campaign(name: str, **more: object) -> Row:
    """A row of `campaigns`, as the campaign starts."""
    texts = {"sweep_document": "", "inventory_document": "", "plan_digest": "p", "taxmeter_version": "0.1.0"}
    started_at = datetime(2025, 11, 20, tzinfo=UTC)
    return campaign_row(name, started_at, "quickstart", planned_trials=3, git_commit=None, **texts) | more


def names(store: Store) -> list[str]:
    """Trials that our own reader sees."""
    return sorted(store.trials(["trial_id"])["trial_id"].to_pylist())


def plain_counts(store: Store) -> set[int]:
    """What readers without any code of ours count in `results/trials`; a set of one number if they agree."""
    path = store.layout.root / "trials"
    if not store.layout.parts():
        return {ds.dataset(str(path), partitioning="hive").count_rows()}
    query = f"SELECT count(*) FROM read_parquet('{path}/**/*.parquet', hive_partitioning=true)"
    return {
        ds.dataset(str(path), partitioning="hive").to_table().num_rows,
        duckdb.sql(query).fetchall()[0][0],
        len(pd.read_parquet(path)),
        pl.scan_parquet(str(path), hive_partitioning=True).collect().height,
    }


class CrashError(BaseException):
    """Stands for the death of the process."""


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, step: int, calls: list[tuple[Any, str]]) -> Iterator[None]:
    """Lets the process die before the given one of these calls, counted together."""
    steps = iter(range(10**6))

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            if next(steps) == step:
                raise CrashError
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for owner, name in calls:
            patch.setattr(owner, name, dying(getattr(owner, name)))
        yield


def forged(table: pa.Table, **columns: object) -> pa.Table:
    """A table of which whole columns say something else, also null where the store has none."""
    for name, value in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place).with_nullable(True)
        table = table.set_column(place, field, pa.array([value] * len(table), field.type))
    return table


def forge(path: Path, **columns: object) -> Path:
    """Rewrites columns of a file of a store, as somebody does who knows how files are named."""
    return rewrite(path, forged(pq.ParquetFile(path).read(), **columns))


def rewrite(path: Path, table: pa.Table) -> Path:
    """Puts another file in the place of one."""
    pq.write_table(table, path)
    return path.rename(path.with_name(file_name(path.read_bytes())))


def fill(disk: Path, leave: int = 0) -> Path:
    """Writes a file that takes all the room of a disk but so many bytes, and returns it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while os.statvfs(disk).f_bavail:
            file.write(bytes(4096))
        file.truncate(file.tell() - leave)
    return ballast
