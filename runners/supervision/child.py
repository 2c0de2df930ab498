"""The life of a forked child, from the fork to its exit. No code of the supervisor runs in it."""

import faulthandler
import os
import resource
import signal
import sys
import traceback
from typing import Callable, NoReturn, Optional

from runners.backends.preparation import OUT_OF_MEMORY, REFUSALS
from runners.contract import Status
from runners.examination.gpu import DeviceLost
from runners.protocol.answer import Answer, encode_answer
from runners.supervision import kernel
from runners.supervision.bounds import limit_memory_of_this_process
from runners.supervision.interrupts import Interrupts
from runners.workloads.base import Unsupported

EXIT_FAILED = 70

_MAX_FILE_BYTES = 4 << 30
_MAX_REASON = 500


def live(
    function: Callable[[], Answer], supervisor: int, answer_fd: int, output_fd: int, interrupts: Interrupts
) -> NoReturn:
    """Runs a function as the body of a child process and never returns.

    Args:
        function: what to do; its answer is written to `answer_fd`.
        supervisor: process id of the parent.
        answer_fd: an empty file.
        output_fd: becomes standard output and error.
        interrupts: the parent's, to be undone.
    """
    try:
        interrupts.reset_in_child()
        os.setsid()
        kernel.die_with_parent(signal.SIGKILL)
        # The parent may have died before the line above took effect
        if os.getppid() == supervisor:
            _settle(output_fd)
            answer = answer_of(function)
            _write_all(answer_fd, encode_answer(answer))
            _flush()
            os._exit(EXIT_FAILED if answer.status in (Status.CRASHED, Status.OOM) else 0)
    except BaseException:  # noqa: BLE001 - unwinding further would run the supervisor's code in the child
        traceback.print_exc()
        _flush()
    finally:
        os._exit(EXIT_FAILED)


def answer_of(function: Callable[[], Answer]) -> Answer:
    """Calls a function and turns what it raises into an answer."""
    answer: Optional[Answer] = None
    try:
        answer = function()
    except Unsupported as refusal:
        answer = Answer(Status.UNSUPPORTED, _one_line(str(refusal)))
    except DeviceLost as loss:
        answer = Answer(Status.INFRASTRUCTURE_ERROR, _one_line(str(loss)))
    except ModuleNotFoundError as error:
        traceback.print_exc()
        missing = (error.name or "").partition(".")[0]
        known = missing and missing != "runners"
        status = Status.UNSUPPORTED if known else Status.CRASHED
        answer = Answer(status, "the environment lacks the module %s" % missing if known else _last_line(error))
    except MemoryError:
        # The answer is made outside: here the frames still hold all the memory
        answer = None
    except Exception as error:  # noqa: BLE001 - whatever a trial raises is its result
        traceback.print_exc()
        exhausted = any(text in str(error) for text in OUT_OF_MEMORY)
        refused = any(text in str(error) for text in REFUSALS)
        status = Status.OOM if exhausted else Status.UNSUPPORTED if refused else Status.CRASHED
        answer = Answer(status, _last_line(error))
    return answer or Answer(Status.OOM, "an allocation failed (MemoryError)")


def _settle(output_fd: int) -> None:
    # The first to be killed when memory runs out, so that the supervisor survives
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.close(null)
    os.close(output_fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = _MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILE_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    limit_memory_of_this_process()
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _last_line(error: BaseException) -> str:
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    # Multi-line messages put what happened first; a syntax error puts it last
    return _one_line(lines[-1] if isinstance(error, SyntaxError) else lines[0])


def _one_line(text: str) -> str:
    # A name of a file may hold bytes that are no text: Python gives them as halves of characters, which no row can hold
    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return " ".join(whole.split())[:_MAX_REASON] or "no reason given"
