"""The fingerprint's own code as one program, for hosts on which nothing of ours is installed.

It is the same code that runs here and in the containers of trials, and the program writes nothing to a disk.
"""

import importlib.util
import json
import sys
from pathlib import Path

import runners

MARK = "taxmeter-facts:"
"""Begins the line with the document: a login script may have printed others."""
OLDEST_PYTHON = (3, 8)

_PACKAGES = ("contract", "system")
# The driver's library is asked through it. It is one file of Python, so that a host needs no package for its GPUs.
_NVML = "pynvml"

_LOADER = '''
import importlib.abc, importlib.util, json, sys
sys.dont_write_bytecode = True
SOURCES = json.loads(%(sources)r)


class Sent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports what was sent with this program."""

    def find_spec(self, name, path=None, target=None):
        place = name.replace(".", "/")
        file = next((one for one in (place + "/__init__.py", place + ".py") if one in SOURCES), None)
        if file is None:
            return None
        return importlib.util.spec_from_loader(name, self, origin=file, is_package=file.endswith("/__init__.py"))

    def exec_module(self, module):
        origin = module.__spec__.origin
        exec(compile(SOURCES[origin], origin, "exec"), module.__dict__)


sys.meta_path.insert(0, Sent())
import dataclasses, platform
from runners.contract import encode
from runners.system import collect, hw_id, nvml, read_conditions, system_id, topology
from runners.system.fingerprint import gpu_places

ROOT = %(root)r
fingerprint = collect(ROOT)
if ROOT != "/":
    # Below another root neither the running kernel nor the driver is asked, but here they are the host's own.
    gpus = nvml.probe()
    kernel, private = fingerprint.kernel, fingerprint.private
    fingerprint = dataclasses.replace(
        fingerprint,
        kernel=dataclasses.replace(kernel, architecture=kernel.architecture or platform.machine()),
        gpus=gpus.devices,
        gpu_driver_version=gpus.driver_version,
        gpu_cuda_version=gpus.cuda_version,
        gpu_reason=gpus.reason,
        private=dataclasses.replace(
            private,
            host_name=%(host_name)r,
            gpu_uuids=gpus.uuids,
            topology=topology.probe(ROOT, gpu_places(gpus)),
        ),
    )
document = {
    "hw_id": hw_id(fingerprint),
    "system_id": system_id(fingerprint),
    "fingerprint": encode(fingerprint),
    "conditions": read_conditions(ROOT),
}
print("\\n" + %(mark)r + json.dumps(document))
'''


def facts_program(root: str = "/", host_name: str | None = None) -> str:
    """A program for Python 3.8 and newer that prints the fingerprint of the system below `root`.

    Args:
        root: where that system's files are.
        host_name: of that system, where `root` is not `/`: in a container the kernel tells the container's.
    """
    values = {"sources": json.dumps(_sources()), "root": root, "host_name": host_name, "mark": MARK}
    return _LOADER % values


def _sources() -> dict[str, str]:
    top = Path(runners.__path__[0])
    files = [top / "__init__.py", *(path for name in _PACKAGES for path in sorted((top / name).rglob("*.py")))]
    sources = {str(path.relative_to(top.parent)): path.read_text(encoding="utf-8") for path in files}
    nvml = importlib.util.find_spec(_NVML)
    if nvml is not None and nvml.origin is not None:
        sources[f"{_NVML}.py"] = Path(nvml.origin).read_text(encoding="utf-8")
    return sources


def this_python() -> str:
    """Version of the Python that runs here."""
    return ".".join(map(str, sys.version_info[:3]))
