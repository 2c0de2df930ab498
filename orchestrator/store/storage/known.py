"""Which rows of `trials` are sealed already.

A sealed row is found by its key in the parts that can hold its campaign. A writer remembers the digests of the keys
that it has read, eight bytes a row, so that a seal costs about the same however much is stored.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from orchestrator.errors import StoreError
from orchestrator.store.schema import ROW_KEY, TRIALS
from orchestrator.store.storage.parts import Footer, read_footer
from orchestrator.store.storage.snapshot import Snapshot

_Digests: TypeAlias = npt.NDArray[np.int64]


class SealedKeys:
    """Keys of sealed rows, read once per part: parts are immutable, and each has a name of its own."""

    def __init__(self) -> None:
        self._footers: dict[str, Footer] = {}
        self._digests: dict[str, _Digests] = {}

    def new_rows(self, rows: pa.Table, snapshot: Snapshot, *, besides: Collection[str] = ()) -> pa.Table:
        """Those of `rows` that are not sealed, in order, the first of each key.

        Args:
            rows: of `trials`.
            snapshot: what is sealed.
            besides: parts that the rows have been compared with before, as `Snapshot.names` calls them.

        Raises:
            StoreError: a part cannot be read.
        """
        unique = without_duplicates(rows)
        parts = dict(zip(snapshot.names("trials"), snapshot.files["trials"], strict=True))
        self._forget_all_but(parts)
        others = {name: path for name, path in parts.items() if name not in besides}
        if not len(unique) or not others:
            return unique
        digests = _digests(unique)
        suspected = np.zeros(len(unique), dtype=bool)
        holding = []
        campaigns = pc.unique(unique["campaign_id"]).to_pylist()
        for name, path in others.items():
            if not self._footer(name, path).may_hold(campaigns):
                continue
            found = _contained(digests, self._of_part(name, path))
            if found.any():
                suspected |= found
                holding.append(path)
        # Two keys may share a digest, and a row must never be dropped for that.
        return _without_sealed(unique, pa.array(suspected), holding) if holding else unique

    def _forget_all_but(self, parts: Mapping[str, str]) -> None:
        self._footers = {name: footer for name, footer in self._footers.items() if name in parts}
        self._digests = {name: digests for name, digests in self._digests.items() if name in parts}

    def _footer(self, name: str, path: str) -> Footer:
        if name not in self._footers:
            self._footers[name] = read_footer(Path(path))
        return self._footers[name]

    def _of_part(self, name: str, path: str) -> _Digests:
        if name not in self._digests:
            self._digests[name] = np.sort(_digests(read_keys([path])))
        return self._digests[name]


def without_duplicates(table: pa.Table) -> pa.Table:
    """The first row of each (trial_id, attempt), in order."""
    numbered = table.select(list(ROW_KEY)).append_column("row", pa.array(range(len(table)), pa.int64()))
    first = numbered.group_by(list(ROW_KEY)).aggregate([("row", "min")])["row_min"]
    if len(first) == len(table):
        return table
    return table.take(first.sort())


def without_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Those of `rows` whose (trial_id, attempt) is not among `keys`, in order."""
    if not len(keys):
        return rows
    sealed = set(_tuples(keys))
    return rows.filter(pa.array([key not in sealed for key in _tuples(rows)], pa.bool_()))


def read_keys(paths: Iterable[str], condition: ds.Expression | None = None) -> pa.Table:
    """The keys of the rows of some parts.

    Raises:
        StoreError: a part cannot be read.
    """
    files = list(paths)
    try:
        return ds.dataset(files, schema=TRIALS, format="parquet").to_table(columns=list(ROW_KEY), filter=condition)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"cannot read {files[0]}: {error}") from error


def _without_sealed(rows: pa.Table, suspected: pa.Array, parts: list[str]) -> pa.Table:
    names = pc.unique(rows["trial_id"].filter(suspected))
    return without_keys(rows, read_keys(parts, pc.field("trial_id").isin(names)))


def _digests(table: pa.Table) -> _Digests:
    return np.fromiter(map(hash, _tuples(table)), dtype=np.int64, count=len(table))


def _contained(digests: _Digests, ordered: _Digests) -> npt.NDArray[np.bool_]:
    places = np.searchsorted(ordered, digests)
    places[places == len(ordered)] = 0
    return np.equal(ordered[places], digests) if len(ordered) else np.zeros(len(digests), dtype=bool)


def _tuples(table: pa.Table) -> Iterable[tuple[str, int]]:
    return zip(*(table[name].to_pylist() for name in ROW_KEY), strict=True)
