"""`dcgmi`, the command of NVIDIA's Data Center GPU Manager: the same counters on GPUs that are older than Hopper."""

import re
import shutil
import subprocess
from typing import Dict, List, Optional, Tuple

# DCGM_FI_PROF_SM_ACTIVE, _SM_OCCUPANCY and _DRAM_ACTIVE: shares of the time, 0 to 1
FIELDS = (1002, 1003, 1005)
_PERIOD_MS = 100
_TIMEOUT_S = 10
_ROW = re.compile(r"\s*\|\s*(\d*)\s*\|(.*)\|\s*$")
_UUID = re.compile(r"UUID:\s*GPU-([0-9a-fA-F-]+)")


class DcgmUnavailable(Exception):  # noqa: N818 - a machine without DCGM is no error
    """The tool is not there or does not answer; the message says why."""


class DcgmWatch:
    """A `dcgmi dmon` that runs beside the calls made within the context; afterwards `output` is what it printed."""

    def __init__(self, uuid: str) -> None:
        """Finds the GPU in DCGM.

        Raises:
            DcgmUnavailable: there is no tool, no engine behind it, or no such GPU.
        """
        if shutil.which("dcgmi") is None:
            raise DcgmUnavailable("there is no dcgmi")
        number = gpu_number(_run(["dcgmi", "discovery", "-l"]), uuid)
        if number is None:
            raise DcgmUnavailable("DCGM does not list the GPU %s" % uuid)
        fields = ",".join(str(field) for field in FIELDS)
        self._command = ["dcgmi", "dmon", "-e", fields, "-i", str(number), "-d", str(_PERIOD_MS)]
        self.output = ""

    def __enter__(self) -> "DcgmWatch":
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self.output, _unused = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.output, _unused = self._process.communicate()


def parse_dmon(text: str) -> Tuple[Tuple[float, ...], ...]:
    """Rows such as `GPU 0     0.912   0.455   0.380`, in the order of FIELDS; one with an `N/A` is left out."""
    samples = []
    for line in text.splitlines():
        words = line.split()
        if len(words) != 2 + len(FIELDS) or words[0] != "GPU" or "N/A" in words:
            continue
        samples.append(tuple(float(word) for word in words[2:]))
    return tuple(samples)


def gpu_number(discovery: str, uuid: str) -> Optional[int]:
    """DCGM's own number for a GPU, out of the table that `dcgmi discovery -l` prints."""
    numbers: Dict[str, int] = {}
    number = None
    for line in discovery.splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        number = int(row.group(1)) if row.group(1) else number
        found = _UUID.search(row.group(2))
        if found and number is not None:
            numbers[found.group(1).lower()] = number
    return numbers.get(uuid.lower())


def _run(command: List[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DcgmUnavailable("dcgmi does not answer: %s" % error) from None
    if done.returncode:
        raise DcgmUnavailable("dcgmi does not answer: %s" % first_line(done.stdout))
    return done.stdout


def first_line(text: str) -> str:
    """What a tool said, for a reason of one line."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "it printed nothing")
