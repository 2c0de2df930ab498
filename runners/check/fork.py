"""Check 2: may children of a process that has imported all frameworks use the device?"""

from runners.check.running import Context, Findings
from runners.supervision import preload
from runners.supervision.interrupts import Interrupts
from runners.system import cuda_driver


def check(context: Context) -> Findings:
    """The status of the driver in the parent after all imports, and whether a child adds on the GPU."""
    found = Findings()
    interrupts = Interrupts()
    interrupts.install()
    found.values["works_in_children"] = preload.facts_of_child(interrupts, on_gpu=True) is not None
    found.values["driver_status"] = status = cuda_driver.status_here()
    found.require(
        status in (None, cuda_driver.NOT_INITIALIZED),
        "the CUDA driver has been started before any trial (cuDeviceGetCount says %s)" % status,
    )
    found.require(found.values["works_in_children"], "a forked child cannot compute on the GPU; check.log says why")
    return found
