"""Check 2: may children of a process that has imported all frameworks use the device?"""

from runners.check.running import Context, Findings
from runners.supervision import preload
from runners.supervision.interrupts import Interrupts
from runners.system import cuda_driver

_MODULES = (
    "torch",
    "torch._dynamo",
    "transformers",
    "runners.workloads.torchvision_import",
    "timm",
    "onnx",
    "runners.backends.onnxruntime_import",
)


def check(context: Context) -> Findings:
    """The status of the driver in the parent after all imports, and whether a child adds on the GPU."""
    found = Findings()
    interrupts = Interrupts()
    interrupts.install()
    preload.import_all(_MODULES)
    status = cuda_driver.status_here()
    found.values["driver_status_after_imports"] = status
    found.values["works_in_children"] = preload.children_can_compute(interrupts, on_gpu=True)
    found.require(
        status in (None, cuda_driver.NOT_INITIALIZED),
        "imports have started the CUDA driver (cuDeviceGetCount says %s)" % status,
    )
    found.require(found.values["works_in_children"], "a forked child cannot compute on the GPU; check.log says why")
    return found
