"""Checks a whole store: that every byte can be read, and that nothing else stands there. Changes nothing."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.store.query.reading import View
from orchestrator.store.query.tabular import is_partial_export
from orchestrator.store.schema import SCHEMA_VERSION
from orchestrator.store.storage.checking import differences, open_checked
from orchestrator.store.storage.files import Layout, try_lock
from orchestrator.store.storage.journal import read_segment
from orchestrator.store.storage.snapshot import SCHEMAS, Snapshot
from orchestrator.store.verification.coherence import check_small, check_trials
from orchestrator.store.verification.findings import RESTORE, Verification, line_of

_MONTH: Final = re.compile(r"month=(\d{4}-\d{2})/part-[^/]+\.parquet")


def verify(view: View, layout: Layout | None) -> Verification:
    """Checks a store.

    Args:
        view: all of its rows.
        layout: where it is; null for one that is not a directory here, and has only sealed files.

    Raises:
        StoreError: the store cannot be listed at all.
    """
    found = Verification()
    readable = _check_files(view.snapshot, found)
    found.unsealed = len(view.unsealed)
    if layout is not None:
        _check_journal(layout, found)
        _check_strays(layout, view.snapshot, found)
    whole = View(readable, view.unsealed)
    is_partial = layout is not None and is_partial_export(layout.root)
    check_trials(whole, check_small(readable, found), found, is_partial=is_partial)
    return found


def _check_files(snapshot: Snapshot, found: Verification) -> Snapshot:
    """Reads every page of every file; returns the snapshot of those that are whole."""
    good: dict[str, tuple[str, ...]] = {}
    for table in SCHEMAS:
        kept = []
        for path in snapshot.files[table]:
            found.files += 1
            try:
                with snapshot.filesystem.open_input_file(path) as stream:
                    _read_all(stream, path, table, found)
            except (pa.ArrowException, OSError, ValueError) as error:
                found.damage(path, f"cannot be read: {line_of(error)}", RESTORE)
                continue
            kept.append(path)
        good[table] = tuple(kept)
    return replace(snapshot, files=good)


def _read_all(stream: pa.NativeFile, path: str, table: str, found: Verification) -> None:
    """Reads a file, comparing pages with checksums and footer with pages."""
    file = open_checked(stream)
    _check_schema(file, path, table, found)
    for difference in differences(file):
        found.damage(path, difference, RESTORE)


def _check_schema(file: pq.ParquetFile, path: str, table: str, found: Verification) -> None:
    schema = file.schema_arrow
    version = _version(schema)
    if version is None:
        found.damage(path, "says no schema version", "a file that taxmeter did not write; move it out of the store")
    elif version != SCHEMA_VERSION:
        what = f"has schema {version}, and this taxmeter knows {SCHEMA_VERSION}"
        found.damage(path, what, "move it out of the store, and read it with the taxmeter that wrote it")
    for ours in SCHEMAS[table]:
        position = schema.get_field_index(ours.name)
        if position < 0:
            found.damage(path, f"lacks the column {ours.name}", RESTORE)
        elif not schema.field(position).type.equals(ours.type) and not pa.types.is_nested(ours.type):
            found.damage(path, f"column {ours.name} is {schema.field(position).type}, not {ours.type}", RESTORE)


def _version(schema: pa.Schema) -> int | None:
    text = (schema.metadata or {}).get(b"schema_version", b"")
    return int(text) if text.isdigit() else None


def _check_journal(layout: Layout, found: Verification) -> None:
    living = 0
    for segment in layout.segments():
        try:
            content = read_segment(segment)
            with segment.open("rb") as stream:
                is_written = not try_lock(stream.fileno())
        except FileNotFoundError:
            continue
        except OSError as error:
            found.damage(segment, f"cannot be read: {line_of(error)}", "make it readable")
            continue
        living += is_written
        if content.damage is not None and not is_written:
            rows = len(content.table)
            found.damage(
                segment,
                f"{content.damage}; {rows} rows are whole",
                "the next sweep, or `taxmeter results compact`, seals the whole rows and keeps the file in quarantine/",
            )
    if living:
        found.notes.append(f"{living} journals are being written right now")
    aside = sorted(layout.quarantine.iterdir()) if layout.quarantine.is_dir() else []
    for path in aside:
        found.notes.append(f"{path}: put aside earlier, because something in it could not be read")


def _check_strays(layout: Layout, snapshot: Snapshot, found: Verification) -> None:
    """A file that does not belong there makes plain readers fail, or read rows that are none."""
    for table in SCHEMAS:
        root = Path(snapshot.directory) / table
        for path in sorted(root.rglob("*")) if root.is_dir() else []:
            name = str(path.relative_to(root))
            belongs = _MONTH.fullmatch(name) if table == "trials" else "/" not in name and name.endswith(".parquet")
            if not path.is_dir() and not belongs:
                found.damage(path, "does not belong there, and plain readers fail on it", "move it out of the store")
    leftovers = list(layout.temporary.iterdir()) if layout.temporary.is_dir() else []
    if leftovers:
        found.notes.append(f"{layout.temporary}: {len(leftovers)} unfinished files; the next writer removes them")
