"""What becomes of a trial when a GPU, or a library on it, fails: a status, by what the driver and the libraries say."""

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from runners.backends.cuda_graphs import capture
from runners.contract import Status
from runners.examination.profiler import checked_by_latency
from runners.supervision.child import answer_of
from runners.system import cuda_driver
from runners.workloads.tensors import require_gpu
from tests.scripted_nvml import nvml


def drive(monkeypatch: pytest.MonkeyPatch, devices: int, status: int) -> None:
    """NVML with some devices, without a handle for any, and a CUDA driver whose start gives a status."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetCount=lambda: devices))
    library = SimpleNamespace(cuInit=lambda flags: status)
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda name: library)


def torch_without_device(cuda: str | None = "13.0") -> Any:
    return SimpleNamespace(
        __version__="2.13.0", version=SimpleNamespace(cuda=cuda), cuda=SimpleNamespace(is_available=lambda: False)
    )


@pytest.mark.parametrize(
    ("devices", "status", "cuda", "expected"),
    [
        (1, 802, "13.0", Status.INFRASTRUCTURE_ERROR),
        (1, 999, "13.0", Status.INFRASTRUCTURE_ERROR),
        # Hidden by CUDA_VISIBLE_DEVICES; not there; there for others, as this torch is built for processors
        (1, 100, "13.0", Status.UNSUPPORTED),
        (0, 802, "13.0", Status.UNSUPPORTED),
        (1, 802, None, Status.UNSUPPORTED),
    ],
)
def test_a_gpu_that_is_lost_is_the_machines_fault(
    monkeypatch: pytest.MonkeyPatch, devices: int, status: int, cuda: str | None, expected: Status
) -> None:
    drive(monkeypatch, devices, status)
    answer = answer_of(lambda: require_gpu(torch_without_device(cuda)))  # type: ignore[arg-type,return-value]
    assert answer.status is expected
    if expected is Status.INFRASTRUCTURE_ERROR:
        assert f"cuInit says {status} (CUDA_ERROR_" in (answer.reason or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got 768",
            Status.UNSUPPORTED,
        ),
        ("bfc_arena.cc: Available memory of 100 is smaller than requested bytes of 200", Status.OOM),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Status.OOM),
        ("CUDA error: an illegal memory access was encountered", Status.CRASHED),
    ],
)
def test_what_libraries_say_is_a_status(text: str, expected: Status) -> None:
    def fail() -> Any:
        raise RuntimeError(text)

    assert answer_of(fail).status is expected


class Cuda:
    """torch.cuda with streams and captures that are noted; a capture fails while its call asks for that."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.current = "main"
        self.CUDAGraph = SimpleNamespace

    def Stream(self) -> SimpleNamespace:  # noqa: N802 - as torch names it
        return SimpleNamespace(wait_stream=lambda _: self.steps.append("side waits"))

    def current_stream(self) -> Any:
        name = self.current
        return SimpleNamespace(name=name, wait_stream=lambda _: self.steps.append(f"{name} waits"))

    def set_stream(self, stream: Any) -> None:
        self.current = stream.name

    def synchronize(self) -> None:
        self.steps.append("synchronize")

    @contextlib.contextmanager
    def stream(self, _: object) -> Iterator[None]:
        self.steps.append("on side")
        yield
        self.steps.append("off side")

    @contextlib.contextmanager
    def graph(self, _: object) -> Iterator[None]:
        # As torch does: what ends a capture raises, too, and the stream stays
        self.current = "capturing"
        self.steps.append("capture")
        yield
        self.current = "main"


def test_a_capture_follows_the_recipe_and_one_that_fails_gives_the_stream_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    tensor = SimpleNamespace(clone=lambda: "copy")
    calls: list[str] = []

    def call(given: str) -> str:
        calls.append(cuda.current)
        if cuda.current == "capturing" and len(calls) > 12:
            raise RuntimeError("operation not permitted when stream is capturing")
        return given

    captured = capture(call, (tensor,))
    assert (captured.result, captured.inputs) == ("copy", ("copy",))
    assert cuda.steps == ["side waits", "on side", "off side", "main waits", "synchronize", "capture"]
    assert calls == ["main"] * 11 + ["capturing"]
    with pytest.raises(RuntimeError, match="not permitted"):
        capture(call, (tensor,))
    assert cuda.current == "main"


def test_a_device_that_is_busy_for_longer_than_a_call_was_not_seen_right() -> None:
    facts = {"busy_s": 0.0013, "profiler_valid": True}
    assert checked_by_latency(facts, 0.0012) == {}
    assert checked_by_latency(facts, 0.0010) == {
        "profiler_valid": False,
        "profiler_problem": "the device is busy for 1300 us of a call of 1000 us",
    }
    assert checked_by_latency({"busy_s": None, "profiler_valid": True}, 0.001) == {}
