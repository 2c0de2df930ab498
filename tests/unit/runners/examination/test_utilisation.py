"""Utilisation out of NVML's GPM metrics, out of dcgmi, and out of neither."""

import itertools
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from runners.examination import dcgm
from runners.examination.gpu import format_uuid
from runners.examination.utilisation import estimated_occupancy, measure_utilisation

UUID = "34bf77d1-c686-6821-79a8-32d326c5039c"
DISCOVERY = """\
2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:18:00.0                                         |
|        | Device UUID: GPU-f5046fa5-3db4-45e8-870a-dc1376becaa5                |
+--------+----------------------------------------------------------------------+
| 3      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:3E:00.0                                         |
|        | Device UUID: GPU-34bf77d1-c686-6821-79a8-32d326c5039c                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
+-----------+
| Switch ID |
+-----------+
"""
DMON = """\
#Entity   SMACT        SMOCC        DRAMA
ID
GPU 3     N/A          N/A          N/A
GPU 3     0.100        0.010        0.000
GPU 3     0.600        0.200        0.300
GPU 3     0.800        0.400        0.100
GPU 3     0.200        0.020        0.010
"""


class Gpu:
    """A driver that remembers what was asked of it; sets GPM metrics in percent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, percent: dict[int, float] | None) -> None:
        self.percent = percent
        self.steps: list[str] = []
        self.freed = 0
        self.invalid: set[int] = set()
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetUtilizationRates": self.rates,
            "nvmlGpmQueryDeviceSupport": lambda _: SimpleNamespace(isSupportedDevice=int(percent is not None)),
            "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
            "nvmlGpmSampleFree": self.free,
            "nvmlGpmSampleGet": lambda *_: self.steps.append("sample"),
            "nvmlGpmMetricsGet": self.metrics,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)
        device = SimpleNamespace(uuid=UUID)
        cuda = {"is_available": lambda: True, "current_device": lambda: 0, "get_device_properties": lambda _: device}
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(**cuda)))

    def rates(self, _: object) -> SimpleNamespace:
        self.steps.append("rates")
        return SimpleNamespace(gpu=97, memory=12)

    def free(self, _: object) -> None:
        self.freed += 1

    def metrics(self, request: Any) -> None:
        assert (request.version, request.numMetrics) == (1, 3)
        for index in range(request.numMetrics):
            metric = request.metrics[index]
            metric.value = (self.percent or {})[metric.metricId]
            metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if metric.metricId in self.invalid else 0

    def measure(self) -> dict[str, Any]:
        clock = itertools.count(0.0, 0.5)
        return measure_utilisation(
            lambda _: self.steps.append("call"), [(1,)], lambda: self.steps.append("wait"), 1000, lambda: next(clock)
        )


def metrics(**changes: float) -> dict[int, float]:
    percent = {"SM_UTIL": 57.0, "SM_OCCUPANCY": 9.25, "DRAM_BW_UTIL": 30.0} | changes
    return {getattr(pynvml, "NVML_GPM_METRIC_" + name): value for name, value in percent.items()}


def test_gpm_metrics_are_read_around_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, metrics())
    assert gpu.measure() == {
        "utilisation_sm_active_share": 0.57,
        "utilisation_sm_occupancy_share": 0.0925,
        "utilisation_dram_bandwidth_share": 0.3,
        "utilisation_source": "nvml_gpm",
        "utilisation_kernel_time_share": 0.97,
        "utilisation_memory_time_share": 0.12,
        "utilisation_problem": None,
        "utilisation_call_s": 0.75,
    }
    assert gpu.steps == ["wait", "sample", "call", "call", "rates", "wait", "sample"]
    assert gpu.freed == 2


@pytest.mark.parametrize("value", [float("nan"), 40.0])
def test_a_metric_that_is_not_there_is_null(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    gpu = Gpu(monkeypatch, metrics(SM_OCCUPANCY=value))
    if value == 40.0:
        gpu.invalid = {pynvml.NVML_GPM_METRIC_SM_OCCUPANCY}
    facts = gpu.measure()
    assert (facts["utilisation_sm_active_share"], facts["utilisation_sm_occupancy_share"]) == (0.57, None)
    assert facts["utilisation_problem"] == "NVML knows only a part of the counters"


def tool(
    directory: Path, monkeypatch: pytest.MonkeyPatch, dmon: str, discovery: str = DISCOVERY, code: int = 0
) -> None:
    """A `dcgmi` that prints what it is told; `dmon` then runs on until it is ended, as the real one does."""
    (directory / "discovery").write_text(discovery)
    (directory / "dmon").write_text(dmon)
    script = directory / "dcgmi"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {directory}/asked\n'
        f"cat {directory}/$1\n"
        f"[ $1 = discovery ] && exit {code}\n"
        f"touch {directory}/ready\n"
        "exec sleep 60\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_dcgm_serves_older_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = Gpu(monkeypatch, None)
    tool(tmp_path, monkeypatch, DMON)
    ready = tmp_path / "ready"
    clock = itertools.count(0.0, 0.5)
    facts = measure_utilisation(lambda: wait_for(ready), [()], None, 1000, lambda: next(clock))
    assert facts["utilisation_source"] == "dcgm"
    # The window's first and last samples saw only a part of it
    assert facts["utilisation_sm_active_share"] == pytest.approx(0.7)
    assert facts["utilisation_sm_occupancy_share"] == pytest.approx(0.3)
    assert facts["utilisation_dram_bandwidth_share"] == pytest.approx(0.2)
    assert facts["utilisation_problem"] is None
    assert facts["utilisation_kernel_time_share"] == 0.97
    assert (tmp_path / "asked").read_text().splitlines() == ["discovery -l", "dmon -e 1002,1003,1005 -i 3 -d 100"]
    assert gpu.steps == ["rates"]


def test_without_gpm_and_dcgm_there_are_reasons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = Gpu(monkeypatch, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = gpu.measure()
    assert facts["utilisation_problem"] == (
        "NVML has no GPM metrics for this GPU (Hopper and newer have them); there is no dcgmi"
    )
    assert (facts["utilisation_source"], facts["utilisation_sm_active_share"]) == (None, None)
    # Its older counters are there, under their own names
    assert (facts["utilisation_kernel_time_share"], facts["utilisation_memory_time_share"]) == (0.97, 0.12)


def test_gpm_without_permission_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = Gpu(monkeypatch, metrics())

    def refuse(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", refuse)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "NVML's GPM metrics: Insufficient Permissions; there is no dcgmi" in gpu.measure()["utilisation_problem"]
    assert gpu.freed == 2


@pytest.mark.parametrize(
    ("dmon", "discovery", "code", "words"),
    [
        (DMON, "Error: unable to establish a connection\n", 1, "does not answer: Error: unable to establish"),
        (DMON, "0 GPUs found.\n", 0, "DCGM does not list the GPU " + UUID),
        ("Error: profiling module not loaded\n", DISCOVERY, 0, "gave no sample: Error: profiling module"),
    ],
)
def test_a_dcgm_that_does_not_serve_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dmon: str, discovery: str, code: int, words: str
) -> None:
    Gpu(monkeypatch, None)
    tool(tmp_path, monkeypatch, dmon, discovery, code)
    clock = itertools.count(0.0, 0.5)
    ready = tmp_path / "ready"
    waiting = "dmon" if "no sample" in words else ""
    facts = measure_utilisation(lambda: waiting and wait_for(ready), [()], None, 1000, lambda: next(clock))
    assert words in str(facts["utilisation_problem"])
    assert facts["utilisation_sm_active_share"] is None


def test_without_counters_the_profiler_estimates_the_occupancy_and_is_named() -> None:
    facts = {"profiler_valid": True, "profiler_occupancy": 0.4, "busy_s": 0.001, "utilisation_call_s": 0.004}
    assert estimated_occupancy(facts) == {
        "utilisation_sm_occupancy_share": pytest.approx(0.1),
        "utilisation_source": "profiler_estimate",
    }
    assert estimated_occupancy({**facts, "utilisation_sm_occupancy_share": 0.2}) == {}
    assert estimated_occupancy({**facts, "profiler_valid": False}) == {}
    assert estimated_occupancy({**facts, "profiler_occupancy": None}) == {}


def test_numbers_of_dcgm() -> None:
    assert dcgm.gpu_number(DISCOVERY, UUID) == 3
    assert dcgm.gpu_number(DISCOVERY, UUID.upper()) == 3
    assert dcgm.gpu_number(DISCOVERY, "34bf77d1") is None


def test_a_cpu_has_no_utilisation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    facts = measure_utilisation(lambda: None, [()], None)
    assert facts.pop("utilisation_problem") == "the environment lacks torch"
    assert set(facts.values()) == {None}


def test_a_uuid_is_written_as_nvml_does() -> None:
    assert format_uuid(bytes.fromhex(UUID.replace("-", ""))) == UUID
