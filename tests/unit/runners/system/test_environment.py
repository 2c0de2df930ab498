"""What the environment says of itself."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from runners.system import environment, observe_environment, observe_versions
from tests.conftest import PROJECT
from tests.scripted_nvml import nvml


def test_versions_have_normalised_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    information = tmp_path / "Odd_Name.X-1.5.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: Odd_Name.X\nVersion: 1.5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    versions = observe_versions()
    assert versions["odd-name-x"] == "1.5"
    assert versions["python"] == platform.python_version()
    assert versions["pytest"] == metadata.version("pytest")


def test_only_relevant_variables_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_API_TOKEN", "MY_VARIABLE"):
        monkeypatch.setenv(name, "7")
    facts = observe_environment()
    seen = {name for name, value in facts.items() if name.startswith("env_") and value == "7"}
    assert seen == {"env_OMP_NUM_THREADS", "env_PYTORCH_CUDA_ALLOC_CONF"}


def test_a_framework_is_described_only_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    facts = observe_environment()
    assert not [name for name in facts if name.startswith(("torch", "onnxruntime"))]

    config, version = SimpleNamespace(show=lambda: "built so"), SimpleNamespace(git_version="abc", cuda=None)
    old_torch = SimpleNamespace(__version__="1.4.0", __config__=config, version=version)
    runtime = SimpleNamespace(__version__="1.0", get_available_providers=lambda: ["A", "B"])
    monkeypatch.setitem(sys.modules, "torch", old_torch)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    facts = observe_environment()
    assert (facts["torch_version"], facts["torch_git_version"]) == ("1.4.0", "abc")
    assert facts["torch_config_sha256"] == hashlib.sha256(b"built so").hexdigest()
    assert facts["torch_cpu_capability"] is None, "this release has no such function"
    assert (facts["onnxruntime_providers"], facts["onnxruntime_build"]) == ("A,B", None)


def test_of_gpus_of_several_kinds_the_one_that_trials_see_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"GPU-a": "NVIDIA A100-SXM4-80GB", "GPU-b": "Tesla T4"}
    library = nvml(
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=list(names).__getitem__,
        nvmlDeviceGetUUID=lambda handle: handle,
        nvmlDeviceGetName=names.__getitem__,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    for visible, name in (("GPU-b", "Tesla T4"), ("1", None), ("GPU-c", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert observe_environment().get("driver_visible_gpu") == name


def without_nccl() -> object:
    raise AttributeError("module 'torch._C' has no attribute '_nccl_version'")


@pytest.mark.parametrize(
    ("nccl", "expected"),
    [
        (SimpleNamespace(version=lambda: (2, 29, 7)), "2.29.7"),
        (SimpleNamespace(version=lambda: 2408), "2408"),
        (SimpleNamespace(version=without_nccl), None),
        (None, None),
    ],
)
def test_the_version_of_nccl(monkeypatch: pytest.MonkeyPatch, nccl: object, expected: str | None) -> None:
    torch = SimpleNamespace(__version__="2.13.0", cuda=SimpleNamespace(nccl=nccl))
    torch._C = SimpleNamespace(_cuda_getCompiledVersion=lambda: 13000)
    monkeypatch.setitem(sys.modules, "torch", torch)
    facts = observe_environment()
    assert facts["torch_nccl_version"] == expected
    assert facts["torch_cuda_compiled_version"] == 13000


def test_the_build_is_described_without_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    config = "PyTorch built with:\n  - GCC 13.3\n  - CPU capability usage: AVX512\n  - LAPACK\n"
    torch = SimpleNamespace(__version__="2.13.0", __config__=SimpleNamespace(show=lambda: config))
    monkeypatch.setitem(sys.modules, "torch", torch)
    facts = observe_environment()
    assert facts["torch_config"] == "PyTorch built with: - GCC 13.3 - LAPACK"
    monkeypatch.setattr(torch.__config__, "show", lambda: config.replace("AVX512", "AVX2"))
    assert observe_environment()["torch_config_sha256"] == facts["torch_config_sha256"]


def test_libraries_of_the_driver_are_named_with_their_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_LIBRARY_DIRECTORIES", ())
    monkeypatch.setattr(environment, "_linker_directories", list)
    nothing = {"driver_libcuda": None, "driver_libnvidia_ml": None, "driver_mounted": None}
    monkeypatch.setattr(environment, "_lines", lambda path: [])
    assert {name: value for name, value in observe_environment().items() if name.startswith("driver")} == nothing

    for name in ("libcuda.so.580.65.06", "libcudart.so.13", "libnvidia-ml.so.580.65.06"):
        (tmp_path / name).touch()
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path}")
    lines = {
        "/proc/self/maps": ["7f0-7f1 r-xp 00000000 08:01 123   /other/libcuda.so.575.1", "7f2-7f3 rw-p 0 00:00 0"],
        "/proc/self/mountinfo": [
            "30 1 8:1 /usr/lib/libcuda.so.580.65.06 /usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06 ro - ext4 /dev/x ro",
            "31 1 8:1 /lib.so /data/notes ro - ext4 /dev/x ro",
        ],
    }
    monkeypatch.setattr(environment, "_lines", lambda path: lines.get(path, []))
    facts = observe_environment()
    assert facts["driver_libcuda"] == "libcuda.so.575.1,libcuda.so.580.65.06"
    assert facts["driver_libnvidia_ml"] == "libnvidia-ml.so.580.65.06"
    assert facts["driver_mounted"] == "libcuda.so.580.65.06"


def described(python: Path | str, *arguments: str, path: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """What a Python says that looks for packages at a path, too."""
    environ = {**os.environ, **({} if path is None else {"PYTHONPATH": str(path)})}
    return subprocess.run([python, *arguments], cwd=PROJECT, env=environ, capture_output=True, text=True, timeout=120)


def observed_beside(directory: Path, module: str, code: str) -> "subprocess.CompletedProcess[str]":
    """What the command says where a module of this code is installed."""
    (directory / f"{module}.py").write_text(code)
    return described(sys.executable, "-m", "runners.system", "--environment", path=directory)


@pytest.mark.parametrize("module", ["torch", "timm", "onnx", "onnxscript", "onnxruntime", "openvino", "torch_tensorrt"])
def test_a_framework_that_cannot_be_imported_is_an_error(tmp_path: Path, module: str) -> None:
    done = observed_beside(tmp_path, module, "raise ImportError('libcudart.so.13: cannot open\\nshared object file')\n")
    problem = f"{module} cannot be imported: ImportError: libcudart.so.13: cannot open shared object file"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, problem)


def test_transformers_without_what_every_model_needs_is_an_error(tmp_path: Path) -> None:
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").touch()
    done = observed_beside(package, "modeling_utils", "raise RuntimeError('no tokenizers')\n")
    assert done.returncode == 0, "nothing is installed where Python looks"
    done = observed_beside(tmp_path, "unrelated", "")
    problem = "transformers.modeling_utils cannot be imported: RuntimeError: no tokenizers"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, problem)


def test_a_framework_that_only_lacks_the_driver_of_the_host_is_no_error(tmp_path: Path) -> None:
    code = "raise ImportError('libcuda.so.1: cannot open shared object file')\n"
    done = observed_beside(tmp_path, "torch_tensorrt", code)
    assert done.returncode == 0
    assert "it needs a GPU's driver" in done.stderr
    document = json.loads(done.stdout)
    assert (document["versions"]["pytest"], bool(document["facts"]["libc"])) == (metadata.version("pytest"), True)


def test_the_command_prints_json() -> None:
    document = json.loads(described(sys.executable, "-m", "runners.system").stdout)
    assert len(document["hw_id"]) == len(document["system_id"]) == 32
    assert document["columns"]["cpu_threads"] == document["fingerprint"]["cpu"]["threads"]


@pytest.mark.environment
def test_every_framework_of_an_environment_can_be_imported(cpu_python: Path) -> None:
    """With a torchvision that was not built for this torch, which the runner can import all the same."""
    document = json.loads(described(cpu_python, "-m", "runners.system", "--environment").stdout)
    assert document["facts"]["torch_version"] == document["versions"]["torch"]
    assert {"transformers", "timm", "onnx", "openvino"} <= document["versions"].keys()


@pytest.mark.environment
def test_a_real_torch_is_described_without_touching_a_device(cpu_python: Path) -> None:
    program = (
        "import json, torch\nfrom runners.system import observe_environment\n"
        "facts = observe_environment()\nfacts['initialised'] = torch.cuda.is_initialized()\nprint(json.dumps(facts))"
    )
    facts = json.loads(described(cpu_python, "-c", program).stdout)
    assert facts["torch_version"].endswith("+cpu")
    assert facts["torch_cpu_capability"]
    assert len(facts["torch_config_sha256"]) == 64
    assert facts["initialised"] is False
