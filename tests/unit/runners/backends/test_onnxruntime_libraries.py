"""What the libraries of ONNX Runtime know, and what has to be loaded before it is imported."""

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from runners.backends import onnxruntime_libraries as libraries
from runners.backends import onnxruntime_session as sessions
from runners.workloads.base import Unsupported
from tests.conftest import PROJECT


def test_cuda_libraries_of_packages_are_loaded_and_what_is_none_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("cufft/lib/libcufft.so.10", "cuda_runtime/lib/libcudart.so.11.0", "cufft/lib/notes.txt"):
        path = tmp_path / "nvidia" / library
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    loaded = []

    def load(path: str, mode: int) -> None:
        loaded.append(Path(path).name)
        if "cudart" in path:
            raise OSError("not a library")

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(libraries.ctypes, "CDLL", load)
    libraries.load_packaged_cuda()
    assert loaded == ["libcudart.so.11.0", "libcufft.so.10"]


@pytest.mark.parametrize("looks", [True, False])
def test_a_version_that_looks_for_cuda_when_it_is_imported_finds_it_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """As 1.13.1's `capi/_ld_preload.py` does it: what it cannot load then, it never looks for again."""
    steps: list[str] = []
    monkeypatch.setattr(libraries.ctypes, "CDLL", lambda path, mode=0: steps.append(Path(path).name))
    library = tmp_path / "nvidia" / "curand" / "lib" / "libcurand.so.10"
    capi = tmp_path / "onnxruntime" / "capi"
    for directory in (library.parent, capi):
        directory.mkdir(parents=True)
    library.touch()
    (capi / "_ld_preload.py").write_text("os.environ['ORT_CUDA_UNAVAILABLE'] = '1'\n" if looks else "")
    (tmp_path / "onnxruntime" / "__init__.py").write_text("import ctypes\nctypes.CDLL('onnxruntime', 0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("onnxruntime", "runners.backends.onnxruntime_import"):
        monkeypatch.setitem(sys.modules, name, sys)  # what is imported below goes with the test
        del sys.modules[name]
    importlib.import_module("runners.backends.onnxruntime_import")
    assert steps == (["libcurand.so.10"] if looks else []) + ["onnxruntime"]


KNOWN_SINCE_2023 = ("use_tf32", "user_compute_stream", "disable_synchronize_execution_providers")


@pytest.mark.parametrize("knows", [True, False])
def test_an_option_is_passed_only_to_a_library_that_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    capi = tmp_path / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (tmp_path / "onnxruntime" / "__init__.py").write_text("__version__ = '1.13.1'\n")
    (capi / "libonnxruntime_providers_cuda.so").write_bytes(
        b"\0%b\0" % b"\0".join(n.encode() for n in KNOWN_SINCE_2023) if knows else b"\0has_user_compute_stream\0"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    settings = sessions.SessionSettings("model", "cuda", 1, 3, True, {}, stream=7 if knows else None)
    (name, options), _ = sessions._providers(settings)
    assert name == "CUDAExecutionProvider"
    assert (options["enable_cuda_graph"], options["cudnn_conv_algo_search"]) == ("0", "HEURISTIC")
    assert ("use_tf32" in options, "user_compute_stream" in options) == (knows, knows)
    assert os.environ.get("NVIDIA_TF32_OVERRIDE") == (None if knows else "0")
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    with nullcontext() if knows else pytest.raises(Unsupported, match="1.13.1 does not know user_compute_stream$"):
        sessions.require_known(KNOWN_SINCE_2023[1:])


@pytest.fixture(scope="module", params=[("cuda116-paper", "3.9"), ("cuda13", "3.11")], ids=lambda given: given[0])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a wheel of ONNX Runtime for CUDA is unpacked, as the lock of an environment pins it."""
    environment, python = request.param
    lock = (PROJECT / "docker" / "environments" / f"{environment}.lock").read_text()
    [pinned] = re.findall(r"^onnxruntime-gpu==\S+", lock, re.MULTILINE)
    directory = tmp_path_factory.mktemp(environment)
    platforms = [f"--platform=manylinux{name}_x86_64" for name in ("2014", "_2_28")]
    wanted = ["--no-deps", "--only-binary=:all:", f"--python-version={python}", *platforms, f"--dest={directory}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *wanted, pinned]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        pytest.skip(f"{pinned} cannot be had: {done.stderr.strip().splitlines()[-1]}")
    [path] = directory.glob("*.whl")
    assert "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest() in lock
    with zipfile.ZipFile(path) as archive:
        archive.extractall(directory)
    path.unlink()
    yield directory
    shutil.rmtree(directory)


def of_a_wheel(test: Any) -> Any:
    """Of tests that fetch hundreds of megabytes."""
    return pytest.mark.long(pytest.mark.timeout(1000)(test))


@of_a_wheel
def test_libraries_know_today_what_they_did_not_know_in_2022(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.syspath_prepend(str(wheel))
    is_old = "cuda116-paper" in wheel.name
    known = {name: libraries.library_knows(name) for name in KNOWN_SINCE_2023}
    assert known == dict.fromkeys(KNOWN_SINCE_2023, not is_old)
    assert libraries.library_knows("session.intra_op.allow_spinning")
    assert libraries.looks_for_cuda_when_imported() == is_old


@of_a_wheel
@pytest.mark.parametrize("loads", [True, False])
def test_its_own_search_for_cuda_ends_well_if_packaged_libraries_are_loaded_before(
    wheel: Path, tmp_path: Path, loads: bool
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for libraries with the names of CUDA's")
    search = wheel / "onnxruntime" / "capi" / "_ld_preload.py"
    names = re.findall(r'CDLL\("(lib(?:cu|nv)[a-zA-Z]+\.so[.\d]*)"', search.read_text())
    for name in {name for name in names if "nvinfer" not in name}:
        path = tmp_path / "nvidia" / "cuda" / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-shared", f"-Wl,-soname,{name}", "-o", path, "-xc", "/dev/null"], check=True)
    script = (
        "import os, runpy, sys\nfrom runners.backends.onnxruntime_libraries import *\n"
        "if sys.argv[2] == 'True' and looks_for_cuda_when_imported(): load_packaged_cuda()\n"
        "runpy.run_path(sys.argv[1])\nprint('ORT_CUDA_UNAVAILABLE' in os.environ)"
    )
    environ = {"PYTHONPATH": f"{PROJECT}:{wheel}:{tmp_path}"}
    command = [sys.executable, "-c", script, search, str(loads)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str("cuda116-paper" in wheel.name and not loads)
