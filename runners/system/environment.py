"""What is really installed and loaded in this process, and what it may use. No device is initialised here."""

import hashlib
import os
import platform
import re
import sys
from importlib import metadata
from typing import Any, Dict, Optional, Tuple

from runners.contract import encode
from runners.contract.record import FactValue
from runners.system import limits
from runners.system.kernel import libc_version

_VARIABLES = re.compile(
    r"(CUBLAS|CUDA|CUDNN|DNNL|GOMP|KMP|MALLOC|MKL|NVIDIA|OMP|ONEDNN|ONNX|OPENBLAS|ORT|PYTHON|PYTORCH|TORCH|TRITON|XLA)"
    r"_?[A-Z0-9_]*|LD_PRELOAD|GLIBC_TUNABLES"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY$")


def observe() -> Tuple[Dict[str, str], Dict[str, FactValue]]:
    """Looks at the environment from inside.

    Returns:
        The version of every installed distribution by its normalised name, with `python`; and facts: builds of
        the frameworks that are already imported, interpreter, variables (`env_…`) and limits (`limit_…`).
    """
    facts: Dict[str, FactValue] = {}
    facts.update(_interpreter_facts())
    facts.update(_torch_facts(sys.modules.get("torch")))
    facts.update(_onnxruntime_facts(sys.modules.get("onnxruntime")))
    facts.update({"env_" + name: value for name, value in _variables().items()})
    facts.update({"limit_" + name: value for name, value in encode(limits.probe()).items()})
    return _versions(), facts


def _versions() -> Dict[str, str]:
    versions: Dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name and distribution.version:
            # The first on sys.path is the one that is imported.
            versions.setdefault(_normalised(name), distribution.version)
    versions["python"] = platform.python_version()
    return dict(sorted(versions.items()))


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
    config = _call(torch, "__config__.show")
    return {
        "torch_version": str(torch.__version__),
        "torch_git_version": _attribute(torch, "version.git_version"),
        "torch_cuda_version": _attribute(torch, "version.cuda"),
        "torch_hip_version": _attribute(torch, "version.hip"),
        "torch_cudnn_version": _call(torch, "backends.cudnn.version"),
        "torch_cpu_capability": _call(torch, "backends.cpu.get_cpu_capability"),
        "torch_config_sha256": None if config is None else hashlib.sha256(config.encode("utf-8")).hexdigest(),
    }


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
