"""A store of made-up systems that hangs together: what claims, comparisons and reports are tested with.

    made = make_systems(tmp_path / "results")
    made = make_systems(tmp_path / "results", World(rounds=3, effects=(Effect(1.2, where={"backend": "eager"}),)))

Rows go the way of real ones: trials as planning makes them, records as runners write them, `trial_row`, `Writer`.
Equal worlds give equal rows. `times` in `tests.world` says what every configuration takes without noise.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.planning import EnvironmentPin, Isolation, trial_key, visit
from orchestrator.store import Store, Writer, campaign_row, campaign_totals, environment_row
from orchestrator.store import system_row as row_of_system
from orchestrator.store.origin import RowContext
from orchestrator.store.rows import trial_row
from orchestrator.store.validation import batch_of
from runners.contract import Status, Trial, TrialSpec, digest, encode
from runners.system import hot_columns, hw_id, system_id
from tests.machines import A100, SYSTEMS, System, with_driver
from tests.records import USUAL, Noise, Visit, ended, measured
from tests.world import Effect, design, failure, roofs

Random = np.random.Generator
STARTED = datetime(2026, 10, 20, 18, tzinfo=UTC)
FIRST, SECOND = "paper-20261020T180000Z-aaaaaa", "paper-20261022T180000Z-bbbbbb"
ROOFS = "roofs-20261023T180000Z-cccccc"
NEW_DRIVER = "550.54.15"
DRIVER_EFFECT = Effect(1.10, "dispatch", {"driver": NEW_DRIVER})
"""What the driver of the second campaign does on the A100: a tenth more of the host's work."""
TIMES = ("latency", "dispatch", "busy", "graph", "exposed")
VERSIONS = {
    "cuda126": {"python": "3.11.9", "torch": "2.9.1+cu126", "transformers": "5.23.0", "onnxruntime-gpu": "1.27.0"},
    "cpu": {"python": "3.11.9", "torch": "2.13.0+cpu", "transformers": "5.23.0", "onnxruntime": "1.31.1"},
}


@dataclass(frozen=True)
class World:
    """What is generated."""

    systems: tuple[System, ...] = SYSTEMS
    rounds: int = 5
    seed: int = 2023
    noise: Noise = USUAL
    effects: tuple[Effect, ...] = (DRIVER_EFFECT,)
    design: Callable[[System], Sequence[TrialSpec]] = design
    duplicated: tuple[str, str, int] = ("bert-base", "eager", 1)
    """Workload, backend and batch that run twice in each round."""
    updated: tuple[System, ...] = (with_driver(A100, NEW_DRIVER, "12.4"),)
    """The systems of the second campaign; it has the BERT-base of the first one's design. None: no second campaign."""
    roofs: tuple[System, ...] = ()
    """The systems whose roofs are measured, in a campaign of their own."""
    trials: int = 0
    """At least so many rows: the first campaign again and again, under other names and with other noise."""


@dataclass(frozen=True)
class Made:
    """A store, and the campaigns in it."""

    store: Store
    directory: Path
    campaigns: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class _Place:
    """Where a trial of a campaign runs."""

    campaign_id: str
    system: System
    pin: EnvironmentPin
    started_at: datetime


def make_systems(directory: Path, world: World | None = None) -> Made:
    """Fills a new store with a world, sealed."""
    world = world or World()
    store = Store.open(directory)
    random = np.random.default_rng(world.seed)
    rows = 0
    campaigns = [FIRST]
    with store.writer(seal_after_rows=10**9) as writer:
        first = _campaign(writer, world, FIRST, STARTED, world.systems, random)
        rows += len(first)
        if world.updated:
            campaigns.append(SECOND)
            narrowed = replace(world, design=_bert_base_of(world.design))
            rows += len(_campaign(writer, narrowed, SECOND, STARTED + timedelta(days=2), world.updated, random))
        if world.roofs:
            campaigns.append(ROOFS)
            products = replace(world, design=roofs)
            rows += len(_campaign(writer, products, ROOFS, STARTED + timedelta(days=3), world.roofs, random))
        number = 0
        while rows < world.trials:
            number += 1
            campaigns.append(_again(writer, first, number, world.trials - rows, random))
            rows += min(len(first), world.trials - rows)
    return Made(store, directory, tuple(campaigns), rows)


def pin_of(system: System) -> EnvironmentPin:
    """The environment that the made-up lab runs in on a system."""
    name = "cuda126" if system.is_gpu else "cpu"
    image, layer = (f"sha256:{digest({part: name})}" for part in ("image", "layer"))
    return EnvironmentPin(
        name, Isolation.DOCKER, "a Docker engine answers", lock_sha256=digest({"lock": name}), image_id=image,
        image_digest=image, image_layers=(layer,), image_config_sha256=digest({"configuration": name}),
    )  # fmt: skip


def _bert_base_of(whole: Callable[[System], Sequence[TrialSpec]]) -> Callable[[System], Sequence[TrialSpec]]:
    return lambda system: [one for one in whole(system) if one.workload.name == "bert-base"]


def _campaign(
    writer: Writer, world: World, campaign_id: str, started_at: datetime, systems: Sequence[System], random: Random
) -> pa.Table:
    rows: list[dict[str, object]] = []
    for system in systems:
        place = _Place(campaign_id, system, pin_of(system), started_at)
        _put_dimensions(writer, place)
        rows += _rows_of(place, world, random)
    document = f"version: 1\nname: paper\nrounds: {world.rounds}\n"
    planned = sum(row["status"] != Status.SKIPPED.value for row in rows)
    writer.put_campaign(
        campaign_row(
            campaign_id, started_at, campaign_id.split("-")[0], sweep_document=document, inventory_document="version: 1\nhosts: {}\n",
            plan_digest=digest({"plan": campaign_id}), planned_trials=planned, taxmeter_version="0.1.0",
            git_commit="0123456789abcdef0123456789abcdef01234567",
        )
    )  # fmt: skip
    batch = batch_of(rows, "trials")
    writer.append_batches([batch])
    finished_at = started_at + timedelta(hours=2)
    totals = campaign_totals(finished_at, [Status(str(row["status"])) for row in rows], rows=len(rows))
    writer.finish_campaign(campaign_id, **totals)
    return pa.Table.from_batches([batch])


def _rows_of(place: _Place, world: World, random: Random) -> Iterator[dict[str, object]]:
    specs = [(one, trial_key(one, place.pin), failure(place.system, one)) for one in world.design(place.system)]
    context = _context(place)
    clock = place.started_at
    for one, key, failed in specs:
        if failed is not None and failed.status is Status.SKIPPED:
            trial = _visit(place, one, key, 1, 0, 0)
            yield trial_row(context, trial, ended(Visit(trial, clock, clock), failed.status, failed.reason))
    for number in range(1, world.rounds + 1):
        of_round = float(np.exp(random.normal(0, world.noise.of_round)))
        copies = [
            (one, key, failed, replicate)
            for one, key, failed in specs
            if failed is None or failed.status is not Status.SKIPPED
            for replicate in range(1 + ((one.workload.name, one.backend.name, one.workload.batch) == world.duplicated))
        ]
        for order, index in enumerate(random.permutation(len(copies))):
            one, key, failed, replicate = copies[index]
            trial = _visit(place, one, key, number, order, replicate)
            one_visit = Visit(trial, clock, clock + timedelta(seconds=6 if failed is None else 3), of_round)
            if failed is None:
                record = measured(place.system, one_visit, world.noise, world.effects, random)
            else:
                record = ended(one_visit, failed.status, failed.reason)
            yield trial_row(context, trial, record)
            clock = one_visit.end


def _visit(place: _Place, one: TrialSpec, key: str, number: int, order: int, replicate: int) -> Trial:
    return visit(place.campaign_id, place.system.host, key, one, number, order, replicate, 600)


def _context(place: _Place) -> RowContext:
    fingerprint, name = place.system.fingerprint, place.pin.name
    return RowContext(
        campaign_id=place.campaign_id, task_id=f"{place.campaign_id}-{place.system.host}-{name}",
        host=place.system.host, isolation=place.pin.isolation.value, executor_reason=place.pin.reason,
        environment=name, environment_id=digest({"environment": name})[:32], image_digest=place.pin.image_digest,
        image_id=place.pin.image_id, lock_sha256=place.pin.lock_sha256, runner_sha256=digest({"runner": 1}),
        versions=VERSIONS[name], hw_id=hw_id(fingerprint), system_id=system_id(fingerprint),
        hot=hot_columns(fingerprint), trial_cores="0-7",
        memory_limit_bytes=int((fingerprint.memory.total_bytes or 0) * 0.9),
    )  # fmt: skip


def _put_dimensions(writer: Writer, place: _Place) -> None:
    fingerprint, name = place.system.fingerprint, place.pin.name
    system = system_id(fingerprint), hw_id(fingerprint), hot_columns(fingerprint), encode(fingerprint)
    writer.put("systems", [row_of_system(*system)])
    writer.put("environments", [environment_row(
            digest({"environment": name})[:32], name, VERSIONS[name], {"torch_version": VERSIONS[name]["torch"]},
            image_digest=place.pin.image_digest, lock_sha256=place.pin.lock_sha256,
            image_layers=place.pin.image_layers, image_config_sha256=place.pin.image_config_sha256,
        )])  # fmt: skip


def _again(writer: Writer, first: pa.Table, number: int, most: int, random: Random) -> str:
    """The rows of a campaign once more: each with all its times longer or shorter by one factor of its own."""
    campaign_id = f"paper-{STARTED + timedelta(days=2 + number):%Y%m%dT%H%M%SZ}-{number:06x}"
    rows = first.slice(0, most)
    factors = pa.array(np.exp(random.normal(0, 0.015, len(rows))))
    shift = pa.scalar(timedelta(days=2 + number))
    columns = []
    for column in rows.schema:
        values = rows[column.name].combine_chunks()
        if column.name == "campaign_id":
            values = pa.repeat(campaign_id, len(rows))
        elif column.name == "trial_id":
            values = pa.array([f"{number:08x}{one[8:]}" for one in values.to_pylist()])
        elif column.name == "task_id":
            values = pc.replace_substring(values, FIRST, campaign_id)
        elif column.name in ("started_at", "finished_at"):
            values = pc.add(values, shift)
        elif column.name == "throughput_examples_per_s":
            values = pc.divide(values, factors)
        elif column.name.endswith("_s") and column.name.startswith(TIMES):
            values = pc.multiply(values, factors)
        elif pa.types.is_list(column.type) and column.type.value_type == pa.float64():
            lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
            scaled = pc.multiply(values.flatten(), pa.array(np.repeat(factors.to_numpy(), lengths)))
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            values = pa.ListArray.from_arrays(pa.array(offsets), scaled, mask=values.is_null())
        columns.append(values.cast(column.type))
    batch = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    writer.put_campaign(
        campaign_row(
            campaign_id, STARTED + timedelta(days=2 + number), "paper", sweep_document="version: 1\n",
            inventory_document="version: 1\nhosts: {}\n", plan_digest=digest({"plan": number}),
            planned_trials=len(rows), taxmeter_version="0.1.0", git_commit=None,
        )
    )  # fmt: skip
    writer.append_batches([batch])
    writer.seal()
    return campaign_id
