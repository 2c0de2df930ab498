"""A process in which bytes of strangers are read: it may die, hang or take all memory, and that is a verdict.

    worker = Worker()
    verdict = worker.read("inventory", {"hostinventory.yaml": b"..."})

The process has the parsers of `tests.parsers`.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import TaxmeterError
from tests.hostile import Files

if TYPE_CHECKING:
    from tests.parsers import Parser

LONGEST_S: Final = 2.0
"""Longest time that an input may take of processors, and wait for anything else than for a processor."""
PEAK_BYTES: Final = 300 * 10**6
"""Most memory beyond what the process has before its first input."""
LONGEST_LINE: Final = 2000
_HANGS_S: Final = 120.0
_DATA_BYTES: Final = 4 * 2**30
_INPUTS_OF_A_PROCESS: Final = 2000
_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Verdict:
    """What became of an input."""

    lines: tuple[str, ...] = ()
    """What a person is told; none if it was taken."""
    defect: str | None = None
    """What is wrong with the parser; null if nothing is."""
    cpu_s: float = 0.0
    waited_s: float = 0.0
    """For a lock, a pipe, a sleep; what the clock on the wall adds while others have the processors is not in it."""
    peak_bytes: int = 0

    @property
    def is_beyond_a_limit(self) -> bool:
        return max(self.cpu_s, self.waited_s) > LONGEST_S or self.peak_bytes > PEAK_BYTES


class Worker:
    """A process that reads inputs, one after the other; another one comes after a death."""

    def __init__(self) -> None:
        self._place = tempfile.mkdtemp(prefix="taxmeter-hostile-", dir=_MEMORY if _MEMORY.is_dir() else None)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        self._left = 0

    def read(self, parser: str, files: Files) -> Verdict:
        """Has an input read."""
        verdict, is_first = self._read(parser, files)
        if verdict.is_beyond_a_limit and not is_first:
            # A process keeps memory of earlier inputs, and may wait for a disk that others keep busy
            self._end()
            verdict, _ = self._read(parser, files)
        return verdict

    def _read(self, parser: str, files: Files) -> tuple[Verdict, bool]:
        """The verdict, and whether it was the first of its process."""
        is_first = self._process is None or not self._left
        if is_first:
            self._start()
        assert self._process is not None
        self._left -= 1
        try:
            self._connection.send((parser, files))
            if self._connection.poll(_HANGS_S):
                verdict: Verdict = self._connection.recv()
                return verdict, is_first
            problem = f"it did not end within {_HANGS_S:.0f} s"
        except (EOFError, ConnectionError):
            problem = f"the process ended with {self._process.wait()}"
        self._end()
        return Verdict(defect=problem), is_first

    def close(self) -> None:
        """Ends the process, and leaves nothing behind."""
        self._end()
        shutil.rmtree(self._place)

    def _end(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        self._end()
        ours, theirs = socketpair()
        with theirs:
            program = "import sys; from tests.hostile_worker import serve; serve(int(sys.argv[1]), sys.argv[2])"
            command = [sys.executable, "-c", program, str(theirs.fileno()), self._place]
            root = Path(__file__).resolve().parents[1]
            self._process = subprocess.Popen(command, cwd=root, pass_fds=[theirs.fileno()])
        self._connection = Connection(ours.detach())
        self._connection.recv()  # its imports take no input's time
        self._left = _INPUTS_OF_A_PROCESS


def write(files: Files, directory: Path) -> None:
    """Makes a directory one with these files."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.symlink_to(content)


def files_of(directory: Path) -> Files:
    """The files of a directory, for `write`."""
    return {
        str(path.relative_to(directory)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def serve(descriptor: int, place: str) -> None:
    """Reads inputs as long as somebody sends them.

    Args:
        descriptor: of the socket that they come by.
        place: an empty directory.
    """
    from tests.parsers import PARSERS

    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
    directory, connection = Path(place) / "input", Connection(descriptor)
    os.chdir(place)
    warnings.simplefilter("error")
    idle = _memory("VmRSS")
    connection.send("ready")
    with suppress(EOFError):
        while True:
            name, files = connection.recv()
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            write(files, directory)
            connection.send(_verdict(PARSERS[name], directory, idle))


def _verdict(parser: "Parser", directory: Path, idle: int) -> Verdict:
    Path("/proc/self/clear_refs").write_text("5")  # the peak of its memory is that of now
    began_s, queued_s, started_s, defect = time.process_time(), _queued_s(), time.monotonic(), None
    lines: tuple[str, ...] = ()
    try:
        lines = tuple(parser.read(directory))
    except TaxmeterError as error:
        lines = (str(error),)
        if parser.names is not None and parser.names not in lines[0]:
            defect = f"it does not name {parser.names}: {lines[0][:LONGEST_LINE]!r}"
    except BaseException:  # noqa: BLE001 - whatever it is, it is a defect
        defect = traceback.format_exc()
    cpu_s, peak = time.process_time() - began_s, _memory("VmHWM") - idle
    waited_s = max(time.monotonic() - started_s - cpu_s - (_queued_s() - queued_s), 0.0)
    return Verdict(lines, defect or _problem(lines, cpu_s, waited_s, peak), cpu_s, waited_s, peak)


def _problem(lines: tuple[str, ...], cpu_s: float, waited_s: float, peak: int) -> str | None:
    if max(cpu_s, waited_s) > LONGEST_S:
        return f"it took {cpu_s:.1f} s and waited {waited_s:.1f} s"
    if peak > PEAK_BYTES:
        return f"it took {peak / 1e6:.0f} MB"
    wrong = next((line for line in lines if not line or len(line.splitlines()) != 1 or len(line) > LONGEST_LINE), None)
    return None if wrong is None else f"it is told in what is no line: {wrong[:LONGEST_LINE]!r}"


def _queued_s() -> float:
    """How long the threads of this process have waited for a processor."""
    times = (path.read_text() for path in Path("/proc/self/task").glob("*/schedstat"))
    return sum(int(text.split()[1]) for text in times) / 1e9


def _memory(name: str) -> int:
    """A value of this process, in bytes, as the kernel has it."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split(maxsplit=1)[0]) * 1024
