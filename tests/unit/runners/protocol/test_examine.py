"""The third process of a trial."""

from types import SimpleNamespace

import pytest

from runners.contract import Protocol
from runners.examination import profiler
from runners.protocol import examine
from runners.protocol.timing import Subject


class Compiled:
    """A module as torch 2.11 compiles it: it refuses to tell a length, and so whether it is true."""

    def __call__(self) -> None:
        pass

    def __len__(self) -> int:
        raise TypeError("ResNet does not support len()")


@pytest.mark.parametrize("waits", [False, True])
def test_a_call_is_neither_true_nor_false(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    compiled = Compiled()
    monkeypatch.setattr(profiler, "profile", lambda call, *_: {"called": call})
    backend = SimpleNamespace(
        dispatched=lambda call: None if waits else call, spec=SimpleNamespace(protocol=Protocol(profile_calls=2))
    )
    subject = Subject(compiled, [()], lambda: None)
    facts = examine._profile(examine._Ready(backend, subject, None))  # type: ignore[arg-type]
    assert facts["called"] is compiled
    assert ("dispatch_problem" in facts) == waits
