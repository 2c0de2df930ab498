"""Models of users' own files through a whole sweep: text, sound, images and plain tensors, and files that go wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ExitCode
from tests.conftest import PROJECT
from tests.project import Project

pytestmark = [pytest.mark.cluster, pytest.mark.environment]

MODELS = PROJECT / "tests" / "data" / "models"
SWEEP = """
version: 1
name: own
environments: [cpu]
workloads:
  - {name: mlp, module: models/mlp.py:build, batch: 2, options: {hidden_size: 32}}
  - {name: electra, module: models/electra.py:build, batch: 2, sequence_length: 16, options: {shrunk: true}}
  - {name: xlnet, module: models/xlnet.py:build, batch: 2, options: {shrunk: true}}
  - {name: convnext, module: models/convnext.py:build, batch: 2, image_size: 32, options: {shrunk: true}}
  - {name: whisper, module: models/whisper.py:build, batch: 2, options: {shrunk: true}}
backends: [eager, torchscript, onnxruntime]
threads: [1]
rounds: 1
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, turn_ms: 20, cycles: 3, min_cycles: 2,
   floor_budget_ms: 20}
"""
FAULTY = """
version: 1
name: faulty
environments: [cpu]
workloads:
  - {name: raises, module: models/raises.py:build, batch: 1}
  - {name: no-module, module: models/no_module.py:build, batch: 1}
  - {name: no-example, module: models/no_example.py:build, batch: 1}
  - {name: no-row, module: models/no_row.py:build, batch: 1}
  - {name: absent, module: models/absent.py:build, batch: 1}
backends: [eager]
threads: [1]
rounds: 1
"""
WRONG = {
    "raises": "def build():\n    width = {}['width']\n    return width, width\n",
    "no_module": "def build():\n    return 3, lambda generator: 3\n",
    "no_example": "import torch\ndef build():\n    return torch.nn.Identity(), torch.ones(1)\n",
    "no_row": "import torch\ndef build():\n    return torch.nn.Identity(), lambda g: torch.ones(3, 4)\n",
    "absent": "def build():\n    import not_there_at_all\n    return 1, 2\n",
}
REASONS = {
    "raises": ("crashed", "ModuleFailed: raises.py line 2: KeyError: 'width'"),
    "no-module": ("crashed", "ModuleFailed: build of no_module.py returned int in place of a torch.nn.Module as its first value"),
    "no-example": ("crashed", "ModuleFailed: build of no_example.py returned Tensor in place of a function example(generator)"),
    "no-row": ("crashed", "ModuleFailed: build of no_row.py returned an example with a tensor of shape [3, 4]; its first axis is 1, for one example"),
    "absent": ("unsupported", "the environment lacks the module not_there_at_all"),
}  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, cpu_python: Path) -> Project:
    project = Project.here(tmp_path_factory.mktemp("own"))
    (project.root / "hostinventory.yaml").write_text(
        "version: 1\nhosts: {bench: {connection: local, executor: process}}\n"
    )
    shutil.copytree(MODELS, project.root / "models")
    for name, text in WRONG.items():
        (project.root / "models" / f"{name}.py").write_text(text)
    for sweep, code in ((SWEEP, ExitCode.OK), (FAULTY, ExitCode.TRIALS_FAILED)):
        project.taxmeter("sweep", "run", project.write(sweep), "--results", project.results, code=code, timeout_s=600)
    return project


@pytest.fixture(scope="module")
def rows(bench: Project) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["workload"], row["backend"]): row for row in bench.rows()}


@pytest.mark.parametrize("name", ["mlp", "electra", "xlnet", "convnext", "whisper"])
def test_models_of_every_kind_are_measured_on_several_backends(name: str, rows: dict[tuple[str, str], Any]) -> None:
    for backend in ("eager", "torchscript", "onnxruntime"):
        row = rows[name, backend]
        assert (row["status"], row["reason"]) == ("ok", None)
        assert row["latency_sync_median_s"] > 0
        assert json.loads(row["workload_options"])["module"].startswith(f"{name}.py:build@")
        assert json.loads(row["facts"])["parameters"] > 1000


def test_the_twin_of_a_model_measures_its_floor(rows: dict[tuple[str, str], Any]) -> None:
    facts = json.loads(rows["mlp", "eager"]["facts"])
    assert facts["floor_valid"] or "taken under pressure" in facts["floor_problem"]


@pytest.mark.parametrize("name", sorted(REASONS))
def test_what_a_file_does_wrong_is_a_row_with_its_line_or_name(name: str, rows: dict[tuple[str, str], Any]) -> None:
    assert (rows[name, "eager"]["status"], rows[name, "eager"]["reason"]) == REASONS[name]


def test_code_of_the_store_runs_again_when_that_is_said(bench: Project, rows: dict[tuple[str, str], Any]) -> None:
    trial = rows["mlp", "eager"]["trial_id"]
    shutil.rmtree(bench.root / "models")
    refused = bench.taxmeter("reproduce", trial, "--results", bench.results, code=ExitCode.USAGE)
    assert "mlp.py:build, Python that the store holds" in refused.stderr
    done = bench.taxmeter("reproduce", trial, "--results", bench.results, "--allow-stored-code", "--rounds", 1)
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    again = [row for row in bench.rows() if row["reproduces"] is not None]
    assert {row["trial_key"] for row in again} == {rows["mlp", "eager"]["trial_key"]}
