"""Models of users' own files: what a sweep says of them, what is refused before anything runs, and what travels."""

import json
from pathlib import Path

import pytest

from orchestrator.campaign.stored_plan import StoredPlan, plan_document, refuse_stored_code
from orchestrator.cli import run
from orchestrator.config import Sweep, load_sweep
from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.planning import EnvironmentPin, Isolation, Plan, PlanningHost, plan
from runners.contract import Task, Trial, TrialSpec, decode, encode
from runners.contract.catalogue import resolve_workload_options, weights_bytes, workload_info
from runners.workloads import make_workload
from runners.workloads.base import Unsupported
from tests.conftest import PROJECT, Captured

MODELS = PROJECT / "tests/data/models"
MLP = (MODELS / "mlp.py").read_text()
AXIS = "{name: mine, module: mine.py:build, batch: [1, 8], options: {hidden_size: [64, 128]}}"


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MLP)
    return written(tmp_path, AXIS)


def written(directory: Path, *axes: str, backends: str = "[eager, onnxruntime]") -> Path:
    path = directory / "mine.yaml"
    lines = ("version: 1", "name: mine", "environments: cpu", "rounds: 1", f"backends: {backends}", "workloads:")
    path.write_text("\n".join((*lines, *(f"  - {axis}" for axis in axes))) + "\n")
    return path


def planned(sweep: Sweep) -> Plan:
    pins = {"cpu": EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "lock")}
    return plan(sweep, [PlanningHost("h1", {}, (0, 1), pins)], "c")


def trials(path: Path) -> list[Trial]:
    return [trial for task in planned(load_sweep(path)).tasks for trial in task.task.trials]


def test_the_text_travels_with_the_task_and_its_digest_stands_in_the_options(sweep: Path) -> None:
    (task,) = planned(load_sweep(sweep)).tasks
    there = decode(Task, json.loads(json.dumps(encode(task.task))))
    assert {trial.spec.workload.source for trial in there.trials} == {MLP}
    (named,) = {str(trial.spec.workload.options["module"]) for trial in there.trials}
    assert named.startswith("mine.py:build@")
    assert {trial.spec.workload.options["hidden_size"] for trial in there.trials} == {64, 128}
    assert len(there.trials) == 8


def test_another_text_is_another_trial(sweep: Path) -> None:
    before = trials(sweep)
    (sweep.parent / "mine.py").write_text(MLP + "\n")
    after = trials(sweep)
    assert not {trial.trial_key for trial in before} & {trial.trial_key for trial in after}
    assert before[0].spec.workload.options["module"] != after[0].spec.workload.options["module"]
    (sweep.parent / "mine.py").write_text(MLP)
    assert {trial.trial_key for trial in trials(sweep)} == {trial.trial_key for trial in before}


def test_a_stored_campaign_and_a_driver_elsewhere_have_the_text_and_do_not_need_the_file(sweep: Path) -> None:
    read = load_sweep(sweep)
    stored = StoredPlan("mine", json.loads(json.dumps(plan_document(planned(read)))))
    assert stored.modules == {"mine.py:build": MLP}
    keys = {trial.trial_key for trial in trials(sweep)}
    (sweep.parent / "mine.py").unlink()
    again = load_sweep(read.file, stored.modules)
    assert {trial.trial_key for task in planned(again).tasks for trial in task.task.trials} == keys
    with pytest.raises(ConfigurationError, match=r"the campaign does not have the text of mine\.py:build"):
        load_sweep(read.file, {})
    there = Sweep.model_validate_json(read.model_dump_json(exclude_unset=True))
    assert planned(there).digest == planned(read).digest


def test_what_a_store_holds_is_not_run_unasked() -> None:
    with pytest.raises(ConfigurationError, match=r"mine\.py:build, Python that the store holds .* --allow-stored-code"):
        refuse_stored_code("c", ["mine.py:build"], allowed=False)
    refuse_stored_code("c", ["mine.py:build"], allowed=True)
    refuse_stored_code("c", [], allowed=False)


MINE = "{name: mine, module: mine.py:build, batch: 1}"
WRONG = [
    ("{name: mine, module: mine.py, batch: 1}", MLP, "workloads.0.module: expected FILE.py:FUNCTION"),
    ("{name: mine, module: other.py:build, batch: 1}", MLP, "no such file: "),
    ("{name: mine, module: mine.py:made, batch: 1}", MLP, "mine.py: no function made at its top level; it has: build"),
    (MINE, "def build(:\n", "mine.py:1: no Python that can be read: "),
    (MINE, "def build():\n    pass\n", "mine.py:1: build returns nothing"),
    (MINE, "def build():\n    x = 1\n    return x\n", "mine.py:3: build does not return a pair"),
    (MINE, "def build():\n    if 1:\n        return 1, 2, 3\n    return 1, 2\n", "mine.py:3: build does not return"),
    (MINE, "from .parts import x\ndef build():\n    return 1, 2\n", "mine.py:1: it imports a file beside it"),
    (MINE, "def build(width):\n    return 1, 2\n", "mine.py: build needs width; give it under options"),
    (MINE, "def build(*, twin_batch=0):\n    return 1, 2\n", "mine.py:1: the default of twin_batch"),
    (MINE, "x" * 70_000, "is longer than 65536 bytes"),
    (MINE[:-1] + ", options: {width: 3}}", MLP, "mine.py: build takes no width; it takes hidden_size, shrunk"),
    (MINE[:-1] + ", sequence_length: 8}", MLP, "build takes no sequence_length"),
    ("{name: bert-base, module: mine.py:build, batch: 1}", MLP, "workloads.0.name: bert-base is a workload of the"),
    ("{name: [mine, yours], module: mine.py:build, batch: 1}", MLP, "a model of your own has one name"),
    ("{name: mine, batch: 1}", MLP, "; a model of your own needs module: FILE.py:FUNCTION"),
]


@pytest.mark.parametrize(("axis", "text", "words"), WRONG, ids=[words[:40] for _, _, words in WRONG])
def test_what_is_wrong_is_said_before_anything_runs(
    axis: str, text: str, words: str, tmp_path: Path, in_project: Path, capsys: Captured
) -> None:
    (tmp_path / "mine.py").write_text(text)
    path = written(tmp_path, axis)
    assert run(["sweep", "run", str(path), "--results", str(tmp_path / "results")]) == ExitCode.USAGE
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"taxmeter: {path}:7: workloads.0")
    assert words in said
    assert not (tmp_path / "results").exists()


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "mine.py").write_text(MLP + f"# {directory}\n")
    path = written(tmp_path, *(f"{{name: mine-{d}, module: {d}/mine.py:build, batch: 1}}" for d in "ab"))
    with pytest.raises(ConfigurationError, match=r"workloads\.1\.module: two files are called mine\.py"):
        load_sweep(path)


def test_a_backend_of_one_family_refuses_it_with_those_that_can(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MLP)
    skips = planned(load_sweep(written(tmp_path, AXIS, backends="[fastpath, eager]"))).skips
    assert {skip.reason.partition(";")[0] for skip in skips} == {"backend fastpath cannot run workload mine"}


def test_the_runner_knows_what_to_import_without_running_the_file(sweep: Path) -> None:
    spec = trials(sweep)[0].spec
    assert workload_info(spec.workload).frameworks == ("torch",)
    assert resolve_workload_options(spec.workload) == spec.workload.options
    assert weights_bytes(spec) is None
    (sweep.parent / "mine.py").write_text((MODELS / "electra.py").read_text())
    spec = trials(written(sweep.parent, MINE))[0].spec
    assert workload_info(spec.workload).frameworks == ("torch", "transformers")
    assert make_workload(spec).preload[-1] == "transformers"


def test_a_function_with_the_parameter_shrunk_has_a_twin_whose_batch_is_two_or_what_the_file_says(sweep: Path) -> None:
    def spec_of(text: str, axis: str = AXIS) -> TrialSpec:
        (sweep.parent / "mine.py").write_text(text)
        return trials(written(sweep.parent, axis))[0].spec

    spec = spec_of(MLP)
    twin, width = make_workload(spec).shrunk(), spec.workload.options["hidden_size"]
    assert (twin.batch, twin.options["shrunk"], twin.options["hidden_size"]) == (2, True, width)
    own = spec_of((MODELS / "xlnet.py").read_text(), "{name: mine, module: mine.py:build, batch: 8}")
    assert make_workload(own).shrunk().batch == 1
    with pytest.raises(Unsupported, match=r"build of mine\.py has no parameter shrunk"):
        make_workload(spec_of(MLP.replace(", shrunk=False", "").replace("shrunk", "False"))).shrunk()
