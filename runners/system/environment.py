"""What is really installed and loaded in this process, and what it may use."""

import glob
import hashlib
import os
import platform
import re
import sys
from importlib import metadata
from typing import Any, Dict, Iterable, List, Optional, Tuple

from runners.contract import encode
from runners.contract.record import FactValue
from runners.system import limits, nvml
from runners.system.document import SystemRoot
from runners.system.kernel import libc_version

_VARIABLES = re.compile(
    r"(CUBLAS|CUDA|CUDNN|DNNL|GOMP|KMP|MALLOC|MKL|NVIDIA|OMP|ONEDNN|ONNX|OPENBLAS|ORT|PYTHON|PYTORCH|TORCH|TRITON|XLA)"
    r"_?[A-Z0-9_]*|LD_PRELOAD|GLIBC_TUNABLES"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY$")

_DRIVER_LIBRARIES = ("libcuda", "libnvidia-ml")
# Where a driver is installed, or mounted by NVIDIA's container runtime, beside what the linker is told.
_LIBRARY_DIRECTORIES: Tuple[str, ...] = (
    "/lib",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib",
    "/usr/local/nvidia/lib64",
)


def observe() -> Dict[str, FactValue]:
    """Looks at the environment from inside; a framework may start the driver of a device for its answer.

    Returns:
        Builds of the frameworks that are already imported, interpreter, libraries of the GPU's driver (`driver_…`),
        variables (`env_…`) and limits (`limit_…`).
    """
    facts: Dict[str, FactValue] = {}
    facts.update(_interpreter_facts())
    facts.update(_torch_facts(sys.modules.get("torch")))
    facts.update(_onnxruntime_facts(sys.modules.get("onnxruntime")))
    facts.update(_driver_facts())
    facts.update({"env_" + name: value for name, value in _variables().items()})
    facts.update({"limit_" + name: value for name, value in encode(limits.probe()).items()})
    return facts


def observe_versions(_: Optional[SystemRoot] = None) -> Dict[str, str]:
    """The version of every installed distribution by its normalised name, with `python`."""
    found: Dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name and distribution.version:
            # The first on sys.path is the one that is imported.
            found.setdefault(_normalised(name), distribution.version)
    found["python"] = platform.python_version()
    return dict(sorted(found.items()))


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _interpreter_facts() -> Dict[str, FactValue]:
    flags = (name for name in dir(sys.flags) if not name.startswith(("_", "n_")))
    values = ((name, getattr(sys.flags, name)) for name in flags)
    return {
        "libc": libc_version(),
        "python_implementation": platform.python_implementation(),
        "python_compiler": platform.python_compiler(),
        "python_executable": sys.executable or None,
        "python_flags": " ".join("%s=%d" % pair for pair in values if isinstance(pair[1], int) and pair[1]),
    }


def _torch_facts(torch: Any) -> Dict[str, FactValue]:
    if torch is None:
        return {}
    config = _build_of(_call(torch, "__config__.show"))
    return {
        "torch_version": str(torch.__version__),
        "torch_git_version": _attribute(torch, "version.git_version"),
        "torch_cuda_version": _attribute(torch, "version.cuda"),
        "torch_hip_version": _attribute(torch, "version.hip"),
        # `torch.backends.cudnn.version` starts the driver to see whether the device suits
        "torch_cudnn_version": _call(torch, "_C._cudnn.getVersionInt"),
        "torch_cuda_compiled_version": _call(torch, "_C._cuda_getCompiledVersion"),
        "torch_nccl_version": _nccl_version(torch),
        "torch_cpu_capability": _call(torch, "backends.cpu.get_cpu_capability"),
        "torch_config": None if config is None else " ".join(config.split()),
        "torch_config_sha256": None if config is None else hashlib.sha256(config.encode("utf-8")).hexdigest(),
    }


def _build_of(config: Optional[str]) -> Optional[str]:
    """torch's description of its build, without what it says about the processor that it runs on."""
    if config is None:
        return None
    return "\n".join(line for line in config.splitlines() if "CPU capability usage" not in line)


def _nccl_version(torch: Any) -> Optional[str]:
    """Asks the library, which needs no device for it. A build without NCCL has no such function below its own."""
    try:
        version = _call(torch, "cuda.nccl.version")
    except (AttributeError, RuntimeError):
        return None
    return ".".join(map(str, version)) if isinstance(version, tuple) else None if version is None else str(version)


def _driver_facts() -> Dict[str, FactValue]:
    """Files of the driver that can be loaded here, and those that a container runtime mounted one by one.

    An image holds none of them: they come from the host, and no digest of an image tells which they are.
    """
    directories = [*_linker_directories(), *os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_LIBRARY_DIRECTORIES]
    mapped = [line.split(None, 5)[5] for line in _lines("/proc/self/maps") if line.count("/") and ".so" in line]
    facts: Dict[str, FactValue] = {}
    for library in _DRIVER_LIBRARIES:
        pattern = library + ".so.*"
        paths = [path for path in mapped if os.path.basename(path).startswith(library + ".so.")]
        for directory in directories:
            paths += glob.glob(os.path.join(glob.escape(directory), pattern)) if directory else []
        facts["driver_" + library.replace("-", "_")] = _names(paths)
    mounted = (line.split()[4] for line in _lines("/proc/self/mountinfo") if line.count(" ") > 4)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = nvml.probe() if visible else None
    if gpus is not None and visible in gpus.uuids:
        # Of a host with GPUs of several kinds, whose fingerprint names them all
        facts["driver_visible_gpu"] = gpus.devices[gpus.uuids.index(visible)].name
    facts["driver_mounted"] = _names(path for path in mounted if re.search(r"/lib[^/]+\.so(\.[0-9.]+)?$", path))
    return facts


def _linker_directories() -> List[str]:
    found: List[str] = []
    for path in sorted(glob.glob("/etc/ld.so.conf.d/*.conf")):
        found += [line.strip() for line in _lines(path) if line.startswith("/")]
    return found


def _names(paths: Iterable[str]) -> Optional[str]:
    """Names of files with their versions, links followed; null if there are none."""
    return ",".join(sorted({os.path.basename(os.path.realpath(path)) for path in paths})) or None


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().splitlines()
    except OSError:
        return []


def _onnxruntime_facts(onnxruntime: Any) -> Dict[str, FactValue]:
    if onnxruntime is None:
        return {}
    providers = _call(onnxruntime, "get_available_providers")
    return {
        "onnxruntime_version": str(onnxruntime.__version__),
        "onnxruntime_build": _call(onnxruntime, "get_build_info"),
        "onnxruntime_providers": None if providers is None else ",".join(providers),
    }


def _variables() -> Dict[str, str]:
    names = sorted(name for name in os.environ if _VARIABLES.fullmatch(name) and not _SECRET.search(name))
    return {name: os.environ[name].encode("utf-8", "replace").decode("utf-8") for name in names}


def _attribute(module: Any, path: str) -> Any:
    """A nested attribute, or None: frameworks of different years differ in what they tell."""
    value = module
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _call(module: Any, path: str) -> Optional[Any]:
    function = _attribute(module, path)
    return None if function is None else function()
