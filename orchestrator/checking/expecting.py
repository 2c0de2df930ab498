"""What the inventory expects of a host against what was found."""

import fnmatch

from orchestrator.checking.reading import HostReading
from orchestrator.checking.report import Finding, Level
from orchestrator.inventory import Expectation, in_range


def expect_finding(expected: Expectation, reading: HostReading) -> Finding:
    """One finding for all that is expected; every mismatch stands in its line."""
    count = len([key for key in type(expected).model_fields if getattr(expected, key) is not None])
    if not count:
        return Finding(Level.NONE, "-")
    wrong = mismatches(expected, reading)
    if not wrong:
        return Finding(Level.OK, f"{count}/{count}")
    return Finding(
        Level.FAILURE,
        f"{count - len(wrong)}/{count}",
        f"{'; '.join(wrong)}: mend the host, or correct `expect:`",
    )


def mismatches(expected: Expectation, reading: HostReading) -> list[str]:
    """In what a host is not as expected; what it does not tell is not as expected either."""
    wrong = []
    if expected.gpu_count is not None and expected.gpu_count != len(reading.gpus):
        wrong.append(f"expected {expected.gpu_count} GPUs, found {len(reading.gpus)}")
    if expected.gpu_model is not None:
        others = sorted({gpu.name for gpu in reading.gpus if not fnmatch.fnmatchcase(gpu.name, expected.gpu_model)})
        if others or not reading.gpus:
            wrong.append(f"expected GPUs {expected.gpu_model}, found {', '.join(others) or 'none'}")
    driver = reading.driver_version
    if expected.driver is not None and (driver is None or not in_range(driver, expected.driver)):
        wrong.append(f"expected driver {expected.driver}, found {driver or 'none'}")
    model = reading.cpu_model
    if expected.cpu_model is not None and (model is None or not fnmatch.fnmatchcase(model, expected.cpu_model)):
        wrong.append(f"expected processor {expected.cpu_model}, found {model or 'one without a name'}")
    least, memory = expected.memory_bytes_min, reading.memory_bytes
    if least is not None and (memory is None or memory < least):
        wrong.append(f"expected at least {least} bytes of memory, found {memory}")
    return wrong
