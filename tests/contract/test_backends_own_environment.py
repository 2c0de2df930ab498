"""Backends that compile for minutes or have an environment of their own, on two models, through `python -m runners`."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from runners.contract import Status, Trial, TrialRecord, WorkloadSpec
from tests.conftest import python_of
from tests.contract.conftest import facts_of
from tests.tasks import BRIEF, named, on_one_thread, recorded

# Each makes an environment of gigabytes
pytestmark = [pytest.mark.environment, pytest.mark.long]

WITH_FLOOR = replace(BRIEF, floor_budget_ms=20)
TEXT = WorkloadSpec("tiny-bert", 3, 40)
IMAGE = WorkloadSpec("resnet18", 2, None, 64)
SPEECH = WorkloadSpec("wav2vec2-base", 1)
WRONG_SEED = 4

SABOTAGE = f"""
import torch
from runners.backends import backend_class

class Wrong(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        return tuple(output * 1.001 for output in self.model(*inputs))

def is_wrong(self):
    return self.spec.seed == {WRONG_SEED}

def make_artifact(self, directory):
    if is_wrong(self):
        build = self.workload.build
        self.workload.build = lambda: Wrong(build())
    return made(self, directory)

def load(self, model, artifact):
    return loaded(self, Wrong(model) if model is not None and is_wrong(self) else model, artifact)

backend = backend_class("%s")
made, backend.make_artifact = backend.make_artifact, make_artifact
loaded, backend.load = backend.load, load
"""


@dataclass(frozen=True)
class Own:
    """A backend and its environment."""

    backend: str
    environment: str
    threads: str
    """The fact that tells with how many it computes."""
    with_floor: Collection[str] = ("text", "image")
    """Whose small twin dispatches the same operations."""


BACKENDS = [
    Own("aot_inductor", "cpu", "torch_threads", with_floor=()),
    Own("executorch", "cpu-executorch", "executorch_threads"),
    Own("tvm", "cpu-tvm", "tvm_threads"),
    Own("jax", "cpu-jax", "jax_threads", with_floor=()),
    Own("jax_eager", "cpu-jax", "jax_threads"),
]


@dataclass(frozen=True)
class Measured:
    """What became of the trials of one backend."""

    own: Own
    records: dict[str, TrialRecord]


def trials(backend: str) -> dict[str, Trial]:
    text = on_one_thread(TEXT, backend, protocol=WITH_FLOOR)
    return {
        "text": text,
        "again": replace(text, spec=replace(text.spec, protocol=BRIEF)),
        "two-threads": replace(text, spec=replace(text.spec, protocol=BRIEF, threads=2)),
        "image": on_one_thread(IMAGE, backend, protocol=WITH_FLOOR),
        "wrong": replace(text, spec=replace(text.spec, protocol=BRIEF, seed=WRONG_SEED)),
    }


@pytest.fixture(scope="module", params=BACKENDS, ids=lambda own: own.backend)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    own: Own = request.param
    directory, python = tmp_path_factory.mktemp(own.backend), python_of(own.environment)
    before = SABOTAGE % own.backend
    # Compilers take a minute or more for each of the models
    return Measured(own, recorded(directory, python, *named(trials(own.backend)), before=before, timeout_s=1000))


@pytest.mark.parametrize("name", ["text", "again", "two-threads", "image"])
def test_a_backend_computes_what_eager_computes(measured: Measured, name: str) -> None:
    assert facts_of(measured.records[name])
    verification = measured.records[name].verification
    assert verification is not None
    assert verification.relative_l2 < 1e-5


def test_what_was_compiled_is_found_again(measured: Measured) -> None:
    first, again = measured.records["text"].phases, measured.records["again"].phases
    assert (first.artifact_cache, again.artifact_cache) == ("miss", "hit")
    assert first.artifact_s is not None
    assert again.artifact_s is None


def test_a_trial_computes_with_its_threads_alone(measured: Measured) -> None:
    alone, two = measured.records["again"], measured.records["two-threads"]
    assert [record.facts[measured.own.threads] for record in (alone, two)] == [1, 2]
    [sync] = [series for series in alone.series if series.mode == "sync"]
    # Where Python dispatches each operation, it does so while the one thread computes
    most = 1.5 if measured.own.backend == "jax_eager" else 1.05
    assert sum(sync.cpu_ns) < most * sum(sync.durations_ns)


def test_a_wrong_program_is_caught(measured: Measured) -> None:
    record = measured.records["wrong"]
    assert record.status is Status.WRONG_OUTPUT
    assert "before timing: input 0, output 0: relative_l2 is 0.001" in (record.reason or "")


@pytest.mark.parametrize("name", ["text", "image"])
def test_the_floor_is_that_of_the_same_operations(measured: Measured, name: str) -> None:
    facts = measured.records[name].facts
    assert isinstance(facts["operations"], int)
    if name in measured.own.with_floor:
        assert facts["floor_alike"] is True, facts["floor_problem"]
        assert facts["floor_operations"] == facts["operations"]
    else:
        assert (facts["floor_alike"], facts["floor_valid"]) == (False, False)
        assert "the twin dispatches other operations" in str(facts["floor_problem"])


def test_a_tuning_budget_leaves_tuned_kernels_and_the_log_of_their_search(tmp_path: Path) -> None:
    # Enough for a few batches of candidates
    budget = {"tuning_budget_s": 10}
    tuned = on_one_thread(TEXT, "tvm", budget, timeout_s=800)
    task, cache = tmp_path / "task", tmp_path / "cache"
    task.mkdir()
    cache.mkdir()
    [record] = recorded(task, python_of("cpu-tvm"), tuned, cache=cache, timeout_s=900).values()
    assert (record.status, record.reason) == (Status.OK, None), record.log_tail
    facts = record.facts
    assert facts["tvm_tuned"] is True
    assert 1 <= int(facts["tvm_kernels_tuned"] or 0) <= int(facts["tvm_kernels"] or 0)
    [log] = cache.rglob("database_tuning_record.json")
    assert len(log.read_text().splitlines()) >= int(facts["tvm_candidates"] or 0) >= 1


@pytest.mark.parametrize("backend", ["jax", "jax_eager"])
def test_weights_that_torch_computes_at_each_call_are_settled_before(backend: str, tmp_path: Path) -> None:
    speech = on_one_thread(SPEECH, backend, timeout_s=800)
    [record] = recorded(tmp_path, python_of("cpu-jax"), speech, timeout_s=900).values()
    assert (record.status, record.reason) == (Status.OK, None), record.log_tail
    assert record.verification is not None
    assert record.verification.relative_l2 < 1e-5
