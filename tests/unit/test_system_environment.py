"""What the environment says of itself."""

import hashlib
import json
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from runners.contract import Environment, decode_line, encode_line
from runners.system import observe_environment

REPOSITORY = Path(__file__).resolve().parents[2]


def test_versions_have_normalised_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    information = tmp_path / "Odd_Name.X-1.5.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: Odd_Name.X\nVersion: 1.5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    versions, _ = observe_environment()
    assert versions["odd-name-x"] == "1.5"
    assert versions["python"] == platform.python_version()
    assert versions["pytest"] == metadata.version("pytest")


def test_only_relevant_variables_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_API_TOKEN", "MY_VARIABLE"):
        monkeypatch.setenv(name, "7")
    _, facts = observe_environment()
    assert facts["env_OMP_NUM_THREADS"] == facts["env_PYTORCH_CUDA_ALLOC_CONF"] == "7"
    assert "env_CUDA_API_TOKEN" not in facts
    assert "env_MY_VARIABLE" not in facts


def test_a_framework_is_described_only_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    _, facts = observe_environment()
    assert not [name for name in facts if name.startswith(("torch", "onnxruntime"))]

    old_torch = SimpleNamespace(
        __version__="1.4.0",
        __config__=SimpleNamespace(show=lambda: "built so"),
        version=SimpleNamespace(git_version="abc", cuda=None),
    )
    runtime = SimpleNamespace(__version__="1.0", get_available_providers=lambda: ["A", "B"])
    monkeypatch.setitem(sys.modules, "torch", old_torch)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    _, facts = observe_environment()
    assert (facts["torch_version"], facts["torch_git_version"]) == ("1.4.0", "abc")
    assert facts["torch_config_sha256"] == hashlib.sha256(b"built so").hexdigest()
    assert facts["torch_cpu_capability"] is None, "this release has no such function"
    assert (facts["onnxruntime_providers"], facts["onnxruntime_build"]) == ("A,B", None)


def test_facts_pass_the_contract() -> None:
    versions, facts = observe_environment()
    assert "limit_memory_bytes" in facts
    line = Environment(task_id="t", versions=versions, facts=facts, runner_sha256="0" * 64)
    assert decode_line(encode_line(line)) == line


def test_the_command_prints_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runners.system"], cwd=REPOSITORY, capture_output=True, check=True, timeout=60
    )
    document = json.loads(done.stdout)
    assert len(document["hw_id"]) == len(document["system_id"]) == 32
    assert document["columns"]["cpu_threads"] == document["fingerprint"]["cpu"]["threads"]


@pytest.mark.environment
def test_a_real_torch_is_described_without_touching_a_device(cpu_python: Path) -> None:
    program = (
        "import json, torch\nfrom runners.system import observe_environment\n"
        "facts = observe_environment()[1]\nfacts['initialised'] = torch.cuda.is_initialized()\nprint(json.dumps(facts))"
    )
    done = subprocess.run([cpu_python, "-c", program], cwd=REPOSITORY, capture_output=True, check=True, timeout=120)
    facts = json.loads(done.stdout)
    assert facts["torch_version"].endswith("+cpu")
    assert facts["torch_cpu_capability"]
    assert len(facts["torch_config_sha256"]) == 64
    assert facts["initialised"] is False
