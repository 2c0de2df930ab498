"""Every parser that takes bytes of others: how an input is read there, and what its inputs are made of."""

import fcntl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from orchestrator.analysis.claims.schema import Claims, load_claims
from orchestrator.campaign.control import CampaignProgressState, ControlFiles, Request
from orchestrator.campaign.driver.leftovers import LeftoverIntake
from orchestrator.campaign.handover import Handover, read_handover
from orchestrator.campaign.provision import ReadyHost
from orchestrator.campaign.stored_plan import StoredPlan
from orchestrator.config import Sweep, load_inventory, load_sweep
from orchestrator.config.inventory_file import InventoryDocument
from orchestrator.environments import Catalogue, read_built_images, read_lock
from orchestrator.environments import catalogue as catalogue_module
from orchestrator.environments import record as record_module
from orchestrator.environments.identity import identity_of, read_archive
from orchestrator.environments.record import labels_of
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.calls import answer_of_program
from orchestrator.hosts.cluster.state import Cluster, ClusterFiles
from orchestrator.hosts.conversation import names_in, next_word, outcome_in, read_document, texts_in
from orchestrator.hosts.lock import LockHolder, SweepUnderWayError
from orchestrator.planning import PlanningHost, expansion, plan
from orchestrator.scheduling import Leftover
from orchestrator.store.origin import RowContext, StoredOrigin, TaskOrigin
from orchestrator.store.query.tabular import is_partial_export
from orchestrator.store.storage.objects import Latest
from runners.contract import Task, encode
from runners.system import collect, fingerprint_of_system
from tests.hostile import Files, damaged, documents, schema_of, text_of
from tests.parsers_of_results import (
    exports,
    read_export,
    read_journal,
    read_records,
    read_rows,
    read_store,
    records,
    row_lists,
    segments,
    stores,
)
from tests.scripted_campaign import STORED
from tests.scripted_engine import tar_of
from tests.tasks import trial as trial_of_task
from tests.tracked import tracked

HOST = PlanningHost("h1", {"rack": "r1"}, (0, 1), {"cpu": STORED, "any-suitable": STORED})
Inputs = Callable[[], st.SearchStrategy[Files]]


@dataclass(frozen=True)
class Parser:
    """One of them."""

    read: Callable[[Path], Iterable[str]]
    """Reads a directory; returns or raises what a person is told."""
    inputs: Inputs
    share: int = 4
    """Of a hundred inputs."""
    names: str | None = None
    """What each error that is raised names; null where the caller does that."""


def json_of(name: str, kind: Any, *seeds: Any) -> Inputs:
    """A document of JSON."""
    return lambda: documents(*seeds, schema=schema_of(kind)).map(lambda data: {name: data})


def yaml_of(name: str, kind: Any, pattern: str, *others: str) -> Inputs:
    """A document of YAML: as files of the project are written, and as JSON, which is YAML, too."""

    def inputs() -> st.SearchStrategy[Files]:
        texts = [*(path.read_bytes() for path in tracked(pattern)), *(text.encode() for text in others)]
        trees = [YAML(typ="safe", pure=True).load(text) for text in texts]
        written = st.sampled_from(texts).flatmap(damaged)
        return (documents(*trees, schema=schema_of(kind)) | written).map(lambda data: {name: data})

    return inputs


INVENTORY = """\
version: 1
defaults: &all {connection: ssh, user: bench, port: 2222, labels: {site: lab}, expect: {driver: '>=535,<581'}}
faults: {silence_s: 10, return_s: 300, queue_s: 120}
groups:
  ampere: {hosts: ['a100-*'], gpus: [0-3, GPU-1f*], exclusive: gpu, reserved_cores: 2}
hosts:
  here: {connection: local, executor: process}
  gate: {address: 10.0.0.1, jump: null}
  a100-1: {address: 'fe80::1%eth0', jump: gate, engine: podman, identity_file: ~/.ssh/id, state: drain}
  a100-2: {ssh_alias: two, user: null, port: null, host_key: null, labels: {rack: 'r 1', site: null}}
  bare: {address: bare.lab, python: /usr/bin/python3, engine: null, work_directory: /var/lib/x}
"""


BUILT = """\
images:
  cpu:
    reference: taxmeter/cpu:0
    image_id: sha256:1
    repo_digest: null
    layers: ['sha256:2']
    lock_sha256: a
    recipe_sha256: b
    base: debian
    config_sha256: c
    size_bytes: 100
    versions: {python: '3.11', torch: 2.13.0+cpu}
    facts: {torch_cuda: null, torch_version: '2'}
"""
OWN = """\
version: 1
name: own
environments: [cpu]
workloads: [{name: mine, module: 'mine.py:build', batch: [1, 2], options: {hidden: [8, 16], deep: true}}]
backends: [eager, {name: torchscript, options: {}}]
budget: 6 min
precision: 3 %
duplicate: {workload: mine, backend: eager, batch: 1}
targets: {rack: r1}
guards: {load: {policy: wait, wait_s: 5}}
"""
MODULE = b"def build(hidden=1, **more):\n    return hidden, more\n"


def _sweep(directory: Path) -> Iterable[str]:
    (directory / "mine.py").write_bytes(MODULE)
    wanted = load_sweep(directory / "sweep.yaml")
    if set(wanted.environments) <= set(HOST.environments):
        with patch.object(expansion, "MAX_TRIALS", 3000):  # a valid one of a million takes minutes
            plan(wanted, [HOST], "campaign")
    return ()


def _archive(directory: Path) -> Iterable[str]:
    attributes = read_archive(directory / "image.tar")
    try:
        identity_of(attributes)
        labels_of(attributes)
    except InfrastructureError as error:
        return (str(error),)
    return ()


def _archives() -> st.SearchStrategy[Files]:
    labels = {f"org.taxmeter.{name}": "x" for name in ("environment", "base", "lock-sha256", "recipe-sha256")}
    config = {
        "architecture": "amd64", "os": "linux", "config": {"Env": ["A=1"], "Cmd": ["x"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "1" * 64]},
    }  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": None, "Layers": ["layer.tar"]}]
    files = {"manifest.json": text_of(manifest), "config.json": text_of(config), "layer.tar": b"layer" * 100}
    changed = st.one_of(
        documents(manifest).map(lambda data: {"manifest.json": data}),
        documents(config).map(lambda data: {"config.json": data}),
    )
    spoilt = changed.map(lambda other: tar_of({**files, **other})) | damaged(tar_of(files))
    return spoilt.map(lambda data: {"image.tar": data})


def _control(directory: Path) -> Iterable[str]:
    for path in directory.rglob("*.json"):
        path.chmod(0o600)
    control = ControlFiles(directory)
    for folder in ("requests", "offers"):
        (directory / folder).mkdir(exist_ok=True)
    control.state()
    control.take_requests()
    control.take_offers()
    return ()


def _order(path: Path) -> None:
    path.chmod(0o600)
    read_handover(path)


def _holder(directory: Path) -> Iterable[str]:
    lock = directory / "host"
    with (directory / "host.holder-1").open() as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        return (str(SweepUnderWayError("runs", lock)),)


def _left(directory: Path) -> Iterable[str]:
    lines: list[str] = []
    intake = LeftoverIntake(None, lines.append)  # type: ignore[arg-type]
    origin, task = ((directory / name).read_bytes() for name in ("origin.json", "task.json"))
    intake.take(Leftover(directory / "campaign" / "task", origin, task, 0))
    intake.acknowledgements()
    return lines


def _left_tasks() -> st.SearchStrategy[Files]:
    task = encode(Task(1, "campaign", "task", "cpu", (trial_of_task("synthetic-null"),)))
    origin = TypeAdapter(TaskOrigin).dump_python(TaskOrigin(RowContext("campaign", "cpu", "task"), STORED), mode="json")
    stored = {"store_id": "s", "origin": origin, "fingerprint": encode(collect())}
    good = {"origin.json": text_of(stored), "task.json": text_of(task)}
    spoilt = st.one_of(
        documents(stored, schema=schema_of(StoredOrigin)).map(lambda data: {"origin.json": data}),
        documents(task, schema=schema_of(Task)).map(lambda data: {"task.json": data}),
    )
    return spoilt.map(lambda other: {**good, **other})


LATEST = {
    "format": 1, "store_id": "a-b", "schema_version": 1, "generation": 3,
    "tables": {"trials": [{"key": f"parts/trials/month=2026-11/part-{'0' * 64}.parquet", "bytes": 1}]},
    "superseded": {"parts/systems/x.parquet": "2026-11-20T00:00:00+00:00"},
}  # fmt: skip

PLAN = {
    "tasks": [{"task_id": "t", "host": "h1", "environment": "cpu",
               "trials": {"trial_id": ["a"], "trial_key": ["k"], "round": [1], "replicate": [0], "order": [0]}}],
    "skips": [], "unmatched": [], "places": {"h1": "h1"},
    "common": {"dtype": "float32", "workload": {"name": "mine", "options": {"module": "m.py:build@0"}, "source": "x"}},
    "specifications": {"k": {"workload": {"batch": 1}}},
}  # fmt: skip


def _plan(directory: Path) -> Iterable[str]:
    text = (directory / "plan.json").read_bytes().decode("utf-8", "replace")
    stored = StoredPlan.of({"campaign_id": "c", "sweep": "s", "plan": text})
    assert stored is not None
    stored.modules  # noqa: B018 - a property that reads
    for place in stored.places:
        stored.hosts(place)
        stored.specifications(place)
    stored.waiting({})
    return ()


def _words(directory: Path) -> Iterable[str]:
    pending = (directory / "said").read_bytes()
    while (answer := next_word(pending)) is not None:
        word, data, pending = answer
        if word == "ended":
            said = read_document(data)
            for understood in (outcome_in, texts_in, names_in):
                try:
                    understood(said)
                except InfrastructureError as error:
                    yield str(error)


def _said() -> st.SearchStrategy[Files]:
    outcome = {"exit_code": 1, "ended_because": None, "log_tail": "x"}
    answers = documents(outcome, ["a line"], [["campaign", "task"]])
    words = answers.map(lambda data: b"ended %d\n%s" % (len(data), data))
    return (words | words.flatmap(damaged)).map(lambda data: {"said": data})


def _answers(path: Path) -> None:
    answer_of_program(fingerprint_of_system, path.read_bytes().decode("utf-8", "replace"))


def _printed() -> st.SearchStrategy[Files]:
    answers = documents({"answer": encode(collect())}, {"problem": "x"})
    return answers.map(lambda data: {"printed": b"motd\ntaxmeter-answer:" + data.replace(b"\n", b" ")})


def _fully(read: Callable[[Path], object], name: str) -> Callable[[Path], Iterable[str]]:
    def reading(directory: Path) -> Iterable[str]:
        read(directory / name)
        return ()

    return reading


def _locks() -> st.SearchStrategy[Files]:
    lines = b"torch==2.9.1+cu126 \\\n    --hash=sha256:%s\nnumpy==2.1.0 --hash=sha256:%s  # via torch\n"
    lock = lines % (b"1" * 64, b"2" * 64)
    return (damaged(lock) | st.binary(max_size=200)).map(lambda data: {"cpu.lock": data})


PARSERS = {
    "inventory": Parser(
        _fully(load_inventory, "hostinventory.yaml"),
        yaml_of("hostinventory.yaml", InventoryDocument, "hostinventory.yaml", INVENTORY), 6, "hostinventory.yaml",
    ),
    "sweep": Parser(_sweep, yaml_of("sweep.yaml", Sweep, "sweeps/*.yaml", OWN), 8, "sweep.yaml"),
    "claims": Parser(
        _fully(lambda path: load_claims([path]), "claims.yaml"), yaml_of("claims.yaml", Claims, "claims/*.yaml"), 3, "claims.yaml"
    ),
    "catalogue": Parser(
        _fully(lambda path: Catalogue.load(path, without_locks=True), "images.yaml"),
        yaml_of("images.yaml", catalogue_module._Document, "docker/images.yaml"), 2, "images.yaml",
    ),
    "built-images": Parser(
        _fully(read_built_images, "images.lock.yaml"),
        yaml_of("images.lock.yaml", record_module._Document, "none", BUILT), 2, "images.lock.yaml",
    ),
    "lock": Parser(_fully(read_lock, "cpu.lock"), _locks, 5, "cpu.lock"),
    "records": Parser(read_records, records, 16),
    "rows": Parser(read_rows, row_lists, 6),
    "journal": Parser(read_journal, segments, 8, "x.arrows"),
    "export": Parser(read_export, exports, 5, "/out"),
    "store": Parser(read_store, stores, 1),
    "archive": Parser(_archive, _archives, 6, "image.tar"),
    "cluster": Parser(
        _fully(lambda path: ClusterFiles(SimpleNamespace(root=path, state=path)).load(), "."),
        json_of("cluster/state.json", Cluster), 4,
    ),
    "campaign-state": Parser(_control, json_of("state.json", CampaignProgressState), 3),
    "request": Parser(_control, json_of("requests/1-a.json", Request), 3),
    "offer": Parser(_control, json_of("offers/1-a.json", ReadyHost), 3),
    "order": Parser(_fully(_order, "order.json"), json_of("order.json", Handover), 3, "order.json"),
    "holder": Parser(_holder, json_of("host.holder-1", LockHolder, {"project": "/p", "pid": 1}), 2),
    "left-task": Parser(_left, _left_tasks, 4),
    "objects": Parser(
        _fully(lambda path: Latest.decode(path.read_bytes(), "s3://x: latest.json"), "latest.json"),
        json_of("latest.json", Latest, LATEST), 3, "latest.json",
    ),
    "plan": Parser(_plan, json_of("plan.json", dict[str, Any], PLAN), 3, "campaign c"),
    "exported-rows": Parser(
        _fully(is_partial_export, "."), json_of("EXPORT.json", dict[str, Any], {"partial": True}), 1, "EXPORT.json"
    ),
    "words": Parser(_words, _said, 2),
    "answers": Parser(_fully(_answers, "printed"), _printed, 1),
}  # fmt: skip
"""By name."""
