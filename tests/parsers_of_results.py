"""How records, rows, journals, exports and stores of strangers are read, and what such inputs are made of."""

import io
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from orchestrator.campaign.exchange.intake import import_export
from orchestrator.campaign.exchange.manifest import MANIFEST, Manifest
from orchestrator.errors import StoreError
from orchestrator.execution import RecordReader, read_pieces
from orchestrator.store import Store, fitting
from orchestrator.store.merge import merge
from orchestrator.store.origin import RowContext, TaskOrigin
from orchestrator.store.query.view import current_view
from orchestrator.store.rows import RowBuilder
from orchestrator.store.schema import TRIALS
from orchestrator.store.storage.generations import prepare
from orchestrator.store.storage.journal import Segment, read_segment
from orchestrator.store.storage.layout import Layout
from orchestrator.store.storage.parts import file_name
from orchestrator.store.validation import told, violations
from orchestrator.store.verification import verify
from runners.contract import Begin, End, Environment, Interleaving, Series, Session, Stop, Task, TrialRecord, encode
from tests.exporting import begin, export_into, record
from tests.hostile import Files, cells, damaged, documents, mutated, rows, schema_of, text_of, valid
from tests.hostile_worker import files_of
from tests.recording import line_of
from tests.results import make_store, trial
from tests.scripted_campaign import STORED
from tests.storing import forged, row
from tests.tasks import trial as trial_of_task


def read_records(directory: Path) -> Iterable[str]:
    reader, builder = RecordReader(), RowBuilder(TaskOrigin(RowContext("campaign", "cpu"), STORED))
    planned = trial_of_task("synthetic-null")
    for read in (read for piece in read_pieces(directory / "records.jsonl") for read in reader.feed(piece)):
        line = read.line
        if line is None:
            yield read.problem
        try:
            if isinstance(line, Environment):
                builder.saw(line)
            elif isinstance(line, TrialRecord):
                named = replace(planned, trial_id=line.trial_id, attempt=line.attempt)
                yield from fitting(builder.rows([(named, line)]).trials)[1].values()
        except StoreError as error:
            yield str(error)


def records() -> st.SearchStrategy[Files]:
    first = trial_of_task("synthetic-null")
    series = Series("sync", 1, (5, 6, 7), (5, 6, 7), (0, 0, 0), 0, Stop.CYCLES, (1, 2))
    measured = record(first, series=(series,), session=Session("0" * 32, Interleaving.TURNS, 2), facts={"flops": 1})
    seeds = [Environment("t", {"python": "3.11"}, {"libc": "x"}, "c" * 64), begin(first), measured, End("t", 1)]
    kinds = {"environment": Environment, "begin": Begin, "record": TrialRecord, "end": End}
    said = [valid(schema_of(kind)).map(lambda tree, name=name: {**tree, "type": name}) for name, kind in kinds.items()]
    trees = mutated(st.one_of(st.sampled_from([encode(seed) for seed in seeds]), *said))
    whole = trees.map(lambda tree: line_of(text_of(tree)) if isinstance(tree, dict) else text_of(tree) + b"\n")
    texts = st.lists(whole, min_size=1, max_size=4).map(b"".join)
    return (texts | texts.flatmap(damaged)).map(lambda data: {"records.jsonl": data})


def read_rows(directory: Path) -> Iterable[str]:
    read = json.loads((directory / "rows.json").read_bytes())
    for some in read:
        with suppress(ValueError, TypeError):
            some["started_at"] = datetime.fromisoformat(some["started_at"])
    batch, problems = fitting(read)
    assert not violations(batch, "trials")
    return problems.values()


def row_lists() -> st.SearchStrategy[Files]:
    usual = {**row("a"), "started_at": row("a")["started_at"].isoformat()}  # type: ignore[attr-defined]
    some = st.lists(rows(usual, TRIALS), min_size=1, max_size=3)
    return some.map(lambda read: {"rows.json": json.dumps(read, default=str).encode()})


def read_journal(directory: Path) -> Iterable[str]:
    content = read_segment(directory / "x.arrows")
    if content.damage is not None:
        yield content.damage
    for batch in content.table.combine_chunks().to_batches():
        yield from told(batch, "trials", violations(batch, "trials"))


def segments() -> st.SearchStrategy[Files]:
    layout = Layout(_made("journal"))
    prepare(layout)

    def written(batches: Sequence[Mapping[str, Any]]) -> bytes:
        segment = Segment(layout)
        for number, changes in enumerate(batches):
            segment.append(pa.RecordBatch.from_pylist([{**row(f"t{number}"), **changes}], TRIALS))
        segment.close()
        data = segment.path.read_bytes()
        segment.path.unlink()
        return data

    spoilt = [st.tuples(st.just(field.name), cells(field.type)) for field in TRIALS if field.nullable]
    changes = st.lists(st.one_of(*spoilt), max_size=3).map(dict)
    hostile = st.lists(changes, min_size=1, max_size=2).map(written)
    good = st.just(written([{}, {}, {}]))
    return (hostile | good.flatmap(damaged)).map(lambda data: {"x.arrows": data})


def read_export(directory: Path) -> Iterable[str]:
    store = Store.open(directory / "into")
    report = import_export(directory / "out", store, accept_versions=True)
    yield from report.damages
    assert not _wrong(store)


def _wrong(store: Store) -> list[str]:
    """What no store may hold after bytes of others came in."""
    tables = (("trials", store.trials()), ("systems", store.systems()), ("environments", store.environments()),
              ("campaigns", store.campaigns()))  # fmt: skip
    batches = [(name, batch) for name, table in tables for batch in table.combine_chunks().to_batches()]
    return [line for name, batch in batches for line in told(batch, name, violations(batch, name))]


@cache
def _made(name: str) -> Path:
    """A directory of this process in which a template is made."""
    top = Path(tempfile.mkdtemp(prefix=f"taxmeter-{name}-"))
    TEMPLATES.append(top)
    return top


TEMPLATES: list[Path] = []
"""For the tests to remove."""


def exports() -> st.SearchStrategy[Files]:
    made = export_into(_made("export"))
    made.finish(0)
    made.finish(1)
    files = {f"out/{name}": data for name, data in files_of(made.directory).items() if "code/" not in name}
    kinds = {MANIFEST: schema_of(Manifest), "task.json": schema_of(Task), "system.json": None}

    def spoilt(name: str) -> st.SearchStrategy[Files]:
        data = files[name]
        assert isinstance(data, bytes)
        if Path(name).name in kinds:
            changed = documents(json.loads(data), schema=kinds[Path(name).name])
        else:
            first, *others = data.splitlines(keepends=True)
            trees = [{key: value for key, value in json.loads(line).items() if key != "crc32"} for line in others]
            line = mutated(st.sampled_from(trees)).filter(lambda tree: isinstance(tree, dict))
            changed = line.map(lambda tree: first + line_of(text_of(tree)) + b"".join(others)) | damaged(data)
        return changed.map(lambda new: _with(files, name, new))

    names = [name for name in files if Path(name).name in {*kinds, "records.jsonl"}]
    return st.sampled_from(names).flatmap(spoilt)


def _with(files: Files, name: str, data: bytes) -> Files:
    """The export with another file; another task is the one that it says was exported."""
    old = files[name]
    assert isinstance(old, bytes)
    manifest = files[f"out/{MANIFEST}"]
    assert isinstance(manifest, bytes)
    if name.endswith("task.json"):
        manifest = manifest.replace(sha256(old).hexdigest().encode(), sha256(data).hexdigest().encode())
    return {**files, f"out/{MANIFEST}": manifest, name: data}


def read_store(directory: Path) -> Iterable[str]:
    theirs, mine = Store.open(directory / "theirs"), Store.open(directory / "mine")
    told_of: list[str] = []
    try:
        found = verify(current_view(theirs.layout), theirs.layout)
        told_of += [f"{problem.place}: {problem.what}; {problem.remedy}" for problem in found.problems]
    except StoreError as error:
        told_of.append(str(error))
    try:
        report = merge(mine, current_view(theirs.layout))
        told_of += [*report.conflicts, *report.refused]
    except StoreError as error:
        told_of.append(str(error))
    assert not _wrong(mine)
    return told_of


def stores() -> st.SearchStrategy[Files]:
    made = make_store(_made("store"), trial("a"), trial("b", month=10))
    files = {f"theirs/{name}": data for name, data in files_of(made.layout.root).items() if "lock" not in name}
    parts = {name: data for name, data in files.items() if isinstance(data, bytes)}
    tables = {name: data for name, data in parts.items() if name.endswith(".parquet")}

    def forged(name: str) -> st.SearchStrategy[bytes]:
        table = pq.ParquetFile(io.BytesIO(tables[name])).read()
        columns = st.sampled_from(table.schema.names).flatmap(
            lambda column: st.tuples(st.just(column), cells(table.schema.field(column).type))
        )
        return st.lists(columns, min_size=1, max_size=3).map(lambda changes: _forged(table, dict(changes)))

    def spoilt(name: str) -> st.SearchStrategy[Files]:
        data = parts[name]
        ways = [damaged(data)]
        ways += [forged(name)] * 3 if name in tables else [documents(json.loads(data))] if "STORE" in name else []
        # Under the name of its content, too: who makes a store knows how files are named
        others = {other: content for other, content in files.items() if other != name}
        new_name = lambda new: f"{name.rpartition('/')[0]}/{file_name(new)}"  # noqa: E731
        return st.tuples(st.one_of(ways), st.booleans()).map(
            lambda made: {**others, new_name(made[0]) if made[1] and name in tables else name: made[0]}
        )

    return st.sampled_from(sorted(parts)).flatmap(spoilt)


def _forged(table: pa.Table, changes: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(forged(table, **changes), sink)
    return sink.getvalue()
