"""What the lab decides without an engine."""

import os
import subprocess
import sys

from tests.lab.objects import LABEL_OWNER, current_owner, is_abandoned, owner_of


def test_a_lab_is_abandoned_when_its_process_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        labels = {LABEL_OWNER: owner_of(process.pid)}
        assert not is_abandoned(labels)
        process.kill()
    assert is_abandoned(labels)
    assert not is_abandoned({})
    assert not is_abandoned({LABEL_OWNER: current_owner()})
    # the number was given to another process
    assert is_abandoned({LABEL_OWNER: f"{os.getpid()}:1"})
