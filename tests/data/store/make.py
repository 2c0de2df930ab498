"""Writes the golden store of one schema version, with the code of that version. README.md beside it says how."""

import inspect
import json
import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from orchestrator import store as package
from orchestrator.store.schema import CAMPAIGNS, ENVIRONMENTS, SCHEMA_VERSION, SYSTEMS, TRIALS
from runners.contract import Status

TABLES = {"trials": TRIALS, "systems": SYSTEMS, "environments": ENVIRONMENTS, "campaigns": CAMPAIGNS}
STARTED = datetime(2026, 11, 30, 23, 59, 50, 123456, tzinfo=UTC)
SEALED_ROWS, OPEN_ROWS = 3, 2

VERSIONS = {"python": "3.11.2", "torch": "2.13.0+cpu"}
FINGERPRINT = {
    "cpu": {
        "vendor": "AuthenticAMD",
        "model_name": "EPYC 9R14",
        "cores": 2,
        "flags": ["avx2", "avx512f"],
        "boost": None,
        "caches": [
            {"level": 1, "type": "Data", "size_bytes": 32768, "ways": 8, "shared_by": 1, "instances": 2},
            {"level": 3, "type": "Unified", "size_bytes": None, "ways": None, "shared_by": 2, "instances": 1},
        ],
    },
    "memory": {"total_bytes": 2**34, "transparent_huge_pages": "madvise"},
    "kernel": {"release": "6.18.4", "mitigations": {"meltdown": "Not affected", "retbleed": "Vulnerable"}},
    "virtualisation": {"vm": True, "hypervisor": "kvm", "container": None},
    "gpus": [{"name": "H200", "memory_bytes": 150754820096, "power_limit_mw": 700000, "mig": False}],
    "gpu_driver_version": "580.65.06",
    "gpu_reason": None,
    "private": None,
}


def main(directory: Path) -> None:
    """Makes `directory`: a store with a sealed part, a journal that nobody sealed, and `schema.txt`."""
    directory = directory.resolve()
    shutil.rmtree(directory, ignore_errors=True)
    writer = package.Store.open(directory).writer()
    writer.put_system(package.system_row("s1", "h1", {"cpu_model": "EPYC 9R14", "cpu_cores": 2}, FINGERPRINT))
    more = {"image_layers": ["sha256:a", "sha256:b"], "image_config_sha256": "c0"} if SCHEMA_VERSION >= 3 else {}
    stack = {"image_digest": "sha256:d", "lock_sha256": "f0", **more}
    writer.put_environment(package.environment_row("e1", "cpu", VERSIONS, {"torch_threads": 2}, **stack))
    writer.put_campaign(campaign())
    writer.append([trial(number) for number in range(SEALED_ROWS)])
    writer.seal()
    if hasattr(writer, "finish_campaign"):
        statuses = [Status.OK] * SEALED_ROWS
        totals = package.campaign_totals(STARTED + timedelta(hours=1), statuses, rows=SEALED_ROWS + 1)
        writer.finish_campaign("c1", **totals)
    writer.append([trial(SEALED_ROWS + number) for number in range(OPEN_ROWS)])
    for generation in (directory / "generations").glob("*"):
        # What was replaced is kept for readers that nobody has here.
        if generation != (directory / "current").resolve():
            shutil.rmtree(generation)
    (directory / "schema.txt").write_text("\n".join(described()) + "\n", encoding="utf-8")
    # As a kill would end it: the journal stays.
    sys.stdout.flush()
    os._exit(0)


def campaign() -> dict[str, object]:
    """A row with all that this version knows when a campaign starts."""
    values = {
        "sweep_document": "axes: {}",
        "inventory_document": "hosts: {}",
        "plan_digest": "p1",
        "planned_trials": 5,
        "taxmeter_version": "0.1.0",
        "git_commit": "abc",
        "plan": [{"trial_id": "t00"}],
        "versions": {"python": "3.11.7", "pyarrow": pa.__version__},
    }
    known = inspect.signature(package.campaign_row).parameters
    taken = {name: value for name, value in values.items() if name in known}
    return package.campaign_row("c1", STARTED, "quickstart", **taken)


def trial(number: int) -> dict[str, object]:
    """A row in which each column has a value of its own."""
    row = {field.name: value(field.type, 100 * number + place) for place, field in enumerate(TRIALS)}
    references = {"campaign_id": "c1", "system_id": "s1", "environment_id": "e1"}
    identity = {"trial_id": f"t{number:02d}", "status": "ok", **references}
    return {**row, **identity, "started_at": STARTED + timedelta(seconds=4 * number)}


def value(kind: pa.DataType, seed: int) -> object:
    """A value of a type, another one for each seed."""
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, 10 * seed + place) for place, field in enumerate(kind)}
    if pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
        return [(seed + n) * 1_000_003 / 1e9 for n in range(3)]
    if pa.types.is_list(kind):
        return [value(kind.value_type, seed + n) for n in range(2)]
    if pa.types.is_timestamp(kind):
        return STARTED + timedelta(microseconds=seed)
    if pa.types.is_boolean(kind):
        return seed % 2 == 0
    if pa.types.is_integer(kind):
        return seed
    return json.dumps({"seed": seed}) if pa.types.is_string(kind) else seed / 7


def described() -> list[str]:
    """Each column of this version in a line, as a person compares them."""
    return [line for table, schema in TABLES.items() for field in schema for line in _lines(table, field)]


def _lines(place: str, field: pa.Field) -> list[str]:
    metadata = [f"{key.decode()}={value.decode()}" for key, value in sorted((field.metadata or {}).items())]
    name, is_list = f"{place}.{field.name}", pa.types.is_list(field.type)
    inner = field.type.value_type if is_list else field.type
    # One line per field, however deep: a field that is added must not change the line of another.
    children = inner if pa.types.is_struct(inner) else ()
    kind = str(field.type) if not children else "list of struct" if is_list else "struct"
    own = " | ".join([name, kind, "nullable" if field.nullable else "required", *metadata])
    return [own, *(line for child in children for line in _lines(name, child))]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
