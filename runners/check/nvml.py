"""Check 1: does NVML answer every question that runners ask, as this user and as the one that containers have?"""

import os
import sys
import time
from typing import Any, Callable, Dict, Optional, Tuple

from runners.check.running import Context, Findings, forked
from runners.examination.gpu import GpuUnavailable, gpu_of_torch, nvml_device
from runners.examination.utilisation import GpmUnavailable, gpm_shares
from runners.system import nvml

UNPRIVILEGED = 65532
"""The user of our containers, where root starts them."""

_REQUIRED = ("nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetClockInfo SM", "nvmlDeviceGetName")
_WAIT_S = 10.0


def check(context: Context) -> Findings:
    """Values by question: what NVML answers, or its error."""
    found = Findings()
    users: Dict[str, Callable[[], Any]] = {"own": _answers}
    if os.geteuid() == 0:
        users["unprivileged"] = lambda: _as_user(UNPRIVILEGED, _answers)
    for user, ask in users.items():
        answers, problem = forked(ask, context.within(_WAIT_S))
        found.values[user] = answers
        found.require(problem is None, "NVML, %s user: %s" % (user, problem))
        for name in _REQUIRED if answers else ():
            answer = answers[name]
            is_error = isinstance(answer, dict) and set(answer) == {"error"}
            found.require(not is_error, "%s, %s user: %s" % (name, user, answer))
    same, problem = forked(_same_device, context.within(60))
    found.values["device"] = same
    found.require(problem is None, "torch's device in NVML: %s" % problem)
    if same is not None:
        found.require(same.get("problem") is None, "torch's device in NVML: %s" % same.get("problem"))
    return found


def _as_user(number: int, function: Callable[[], Any]) -> Any:
    os.setgroups([])
    os.setgid(number)
    os.setuid(number)
    return function()


def _answers() -> Dict[str, Any]:
    answers: Dict[str, Any] = {"uid": os.geteuid()}
    with nvml.session() as library:
        for name in ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount"):
            answers[name] = _answer(library, name)
        handle = library.nvmlDeviceGetHandleByIndex(0)
        for label, (name, arguments) in _questions(library).items():
            answers[label] = _answer(library, name, handle, *arguments)
        answers["gpm"] = _gpm(library, handle)
    return answers


def _questions(library: Any) -> Dict[str, Tuple[str, Tuple[Any, ...]]]:
    """Every function that `runners` asks of a device, by a label."""
    plain = (
        *("UUID", "Name", "PciInfo", "CudaComputeCapability", "VbiosVersion", "EnforcedPowerLimit", "PersistenceMode"),
        *("EccMode", "MigMode", "ComputeMode", "MaxPcieLinkGeneration", "MaxPcieLinkWidth", "CurrPcieLinkGeneration"),
        *("CurrPcieLinkWidth", "MemoryInfo", "UtilizationRates", "PowerUsage", "TotalEnergyConsumption"),
        *("ComputeRunningProcesses", "GraphicsRunningProcesses", "MPSComputeRunningProcesses"),
        *("CurrentClocksEventReasons", "CurrentClocksThrottleReasons"),
    )
    questions: Dict[str, Tuple[str, Tuple[Any, ...]]] = {
        "nvmlDeviceGet" + name: ("nvmlDeviceGet" + name, ()) for name in plain
    }
    for text, clock in (("SM", library.NVML_CLOCK_SM), ("MEM", library.NVML_CLOCK_MEM)):
        for name in ("ClockInfo", "MaxClockInfo", "ApplicationsClock", "DefaultApplicationsClock"):
            questions["nvmlDeviceGet%s %s" % (name, text)] = ("nvmlDeviceGet" + name, (clock,))
    questions["nvmlDeviceGetTemperature"] = ("nvmlDeviceGetTemperature", (library.NVML_TEMPERATURE_GPU,))
    for text, policy in (("power", 0), ("thermal", 1)):
        questions["nvmlDeviceGetViolationStatus " + text] = ("nvmlDeviceGetViolationStatus", (policy,))
    questions["nvmlGpmQueryDeviceSupport"] = ("nvmlGpmQueryDeviceSupport", ())
    return questions


def _answer(library: Any, name: str, *arguments: Any) -> Any:
    function = getattr(library, name, None)
    if function is None:
        return {"error": "this binding has no such function"}
    try:
        return _plain(function(*arguments))
    except Exception as error:  # noqa: BLE001 - a binding may raise more than NVML's own errors
        return {"error": "%s: %s" % (type(error).__name__, error)}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    fields = getattr(value, "_fields_", None)
    if fields is not None:
        return {name: _plain(getattr(value, name)) for name, *_ in fields}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _gpm(library: Any, handle: Any) -> Any:
    """The shares of an idle GPU between two samples."""
    try:
        shares, _ = gpm_shares(library, handle, lambda: time.sleep(0.3), lambda: None)
    except (GpmUnavailable, AttributeError) as error:
        return {"error": str(error)}
    return list(shares)


def _same_device() -> Dict[str, Optional[object]]:
    try:
        gpu = gpu_of_torch()
        with nvml_device(gpu.uuid) as device:
            memory = device.ask("nvmlDeviceGetMemoryInfo")
            return {
                "uuid": gpu.uuid,
                "used_with_a_context_bytes": None if memory is None else int(memory.used),
                "torch": sys.modules["torch"].__version__,
                "problem": None,
            }
    except GpuUnavailable as reason:
        return {"problem": str(reason)}
