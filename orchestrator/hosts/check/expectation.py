"""What the inventory expects of a host against what was found."""

import fnmatch
from collections.abc import Sequence

from orchestrator.config import Expectation, in_range


def unmet(
    expected: Expectation, gpus: Sequence[str], driver: str | None, model: str | None, memory: int | None
) -> list[str]:
    """In what a host is not as expected; what it does not tell is not as expected either.

    Args:
        expected: of the host.
        gpus: the names of its GPUs.
        driver: version of NVIDIA's driver.
        model: of the processor.
        memory: in bytes.
    """
    wrong = []
    if expected.gpu_count is not None and expected.gpu_count != len(gpus):
        wrong.append(f"expected {expected.gpu_count} GPUs, found {len(gpus)}")
    if expected.gpu_model is not None:
        others = sorted({name for name in gpus if not fnmatch.fnmatchcase(name, expected.gpu_model)})
        if others or not gpus:
            wrong.append(f"expected GPUs {expected.gpu_model}, found {', '.join(others) or 'none'}")
    if expected.driver is not None and (driver is None or not in_range(driver, expected.driver)):
        wrong.append(f"expected driver {expected.driver}, found {driver or 'none'}")
    if expected.cpu_model is not None and (model is None or not fnmatch.fnmatchcase(model, expected.cpu_model)):
        wrong.append(f"expected processor {expected.cpu_model}, found {model or 'one without a name'}")
    least = expected.memory_bytes_min
    if least is not None and (memory is None or memory < least):
        wrong.append(f"expected at least {least} bytes of memory, found {memory}")
    return wrong
