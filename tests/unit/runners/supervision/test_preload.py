"""What the supervisor asks of frameworks before the first trial, and where."""

import os
import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from runners.supervision import preload
from runners.supervision.interrupts import Interrupts
from runners.system import cuda_driver


def torch_that(said: list[int]) -> SimpleNamespace:
    """A torch that starts the driver of a GPU when it is asked for its cuDNN, as 2.11 does."""

    class Tensor:
        def add_(self, _: int) -> "Tensor":
            return self

        def sum(self) -> None:
            pass

    def version() -> int:
        said.append(os.getpid())
        return os.getpid()

    return SimpleNamespace(
        __version__="2.11.0",
        set_num_threads=lambda _: None,
        ones=lambda *_: Tensor(),
        cuda=SimpleNamespace(is_available=lambda: False),
        _C=SimpleNamespace(_cudnn=SimpleNamespace(getVersionInt=version)),
    )


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interrupts]:
    """Installed as in a supervisor: without SIGCHLD the end of a child is noticed at its deadline only."""
    monkeypatch.setattr("runners.supervision.process.end_all", lambda: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)}
    wakeup_fd = signal.set_wakeup_fd(-1)
    installed = Interrupts()
    installed.install()
    yield installed
    signal.set_wakeup_fd(wakeup_fd)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_frameworks_are_asked_in_a_child(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch, on_gpu: bool) -> None:
    said: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", torch_that(said))
    monkeypatch.setattr(cuda_driver, "status_here", lambda: cuda_driver.NOT_INITIALIZED)
    facts = preload.facts_of_child(interrupts, on_gpu)
    assert facts is not None
    assert facts["torch_version"] == "2.11.0"
    assert facts["torch_cudnn_version"] not in (None, os.getpid())
    assert said == []


def test_a_driver_that_imports_have_started_is_told(
    interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda_driver, "status_here", lambda: 0)
    assert preload.facts_of_child(interrupts, on_gpu=True) is None
    assert "an import has started the CUDA driver: cuDeviceGetCount says 0" in capsys.readouterr().out
