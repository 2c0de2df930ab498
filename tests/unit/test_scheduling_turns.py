"""Whoever measures on a host has it for itself, whichever cluster it is of."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.errors import InfrastructureError
from orchestrator.scheduling.turns import HeldTurn, Turn

SOON_S = 20.0
"""More than a turn takes to pass on, also on a busy machine."""
NEVER_S = 0.3


def test_one_at_a_time_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "locks" / "host")
    with ExitStack() as first:
        assert first.enter_context(HeldTurn(turn)).wait(SOON_S)
        with HeldTurn(turn) as second:
            assert not second.wait(NEVER_S)
            first.close()
            # Whoever has just had it asks again at once, and still comes after the one that waited.
            with HeldTurn(turn) as again:
                assert second.wait(SOON_S)
                assert not again.wait(NEVER_S)
    with HeldTurn(turn) as last:
        assert last.wait(SOON_S)


def test_who_leaves_while_waiting_does_not_keep_it(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "host")
    with HeldTurn(turn) as first:
        assert first.wait(SOON_S)
        with HeldTurn(turn) as impatient:
            assert not impatient.wait(NEVER_S)
    with HeldTurn(turn) as last:
        assert last.wait(SOON_S)


def test_parts_of_a_host_are_held_side_by_side_but_not_beside_all_of_it(tmp_path: Path) -> None:
    place = tmp_path / "host"
    with HeldTurn(Turn(place, "gpu-1")) as one, HeldTurn(Turn(place, "gpu-2")) as two:
        assert one.wait(SOON_S)
        assert two.wait(SOON_S)
        with HeldTurn(Turn(place, "gpu-1")) as same, HeldTurn(Turn(place)) as whole:
            assert not same.wait(NEVER_S)
            assert not whole.wait(NEVER_S)
    with HeldTurn(Turn(place)) as whole:
        assert whole.wait(SOON_S)


def test_who_waits_for_all_of_a_host_is_not_overtaken_by_parts(tmp_path: Path) -> None:
    place = tmp_path / "host"
    with ExitStack() as first:
        assert first.enter_context(HeldTurn(Turn(place, "gpu-1"))).wait(SOON_S)
        with HeldTurn(Turn(place)) as whole:
            assert not whole.wait(NEVER_S)
            with HeldTurn(Turn(place, "gpu-2")) as late:
                assert not late.wait(NEVER_S)
                first.close()
                assert whole.wait(SOON_S)
                assert not late.wait(NEVER_S)


def test_a_killed_holder_has_it_no_longer(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from orchestrator.scheduling.turns import HeldTurn, Turn
with HeldTurn(Turn(Path(sys.argv[1]))) as turn:
    print(turn.wait(60), flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", program, str(tmp_path / "host")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        with HeldTurn(Turn(tmp_path / "host")) as mine:
            assert not mine.wait(NEVER_S)
            os.kill(other.pid, signal.SIGKILL)
            assert mine.wait(SOON_S)


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file")
    with pytest.raises(InfrastructureError, match="locks/host cannot be locked"):
        HeldTurn(Turn(tmp_path / "locks" / "host"))
