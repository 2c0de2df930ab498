"""Three minutes of chaos: nothing is lost, nothing is there twice, nothing is left."""

import subprocess
import sys

import pytest

from tests.lab.image import PROJECT

pytestmark = [pytest.mark.long, pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster, pytest.mark.timeout(3600)]


def test_no_trial_is_lost_twice_or_without_a_reason(lab_possible: None) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--seed", "18", "--minutes", "3"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
