"""What became of a child process: from its end to the status of its trial."""

import signal

from runners.contract import ContractError, Status
from runners.protocol.answer import Answer, decode_answer
from runners.supervision.process import MAX_ANSWER_BYTES, MAX_PRINTED_BYTES, Ended, Stop


def judge(ended: Ended, timeout_s: int) -> Answer:
    """The child's own answer, unless the way in which it ended says otherwise."""
    if ended.oom_kills > 0:
        return Answer(Status.OOM, "the kernel killed a process of the trial: out of memory")
    if ended.stop is Stop.DEADLINE:
        return Answer(Status.TIMEOUT, "no answer within %d s" % timeout_s)
    if ended.stop is Stop.OUTPUT:
        return Answer(Status.CRASHED, "printed more than %d MiB" % (MAX_PRINTED_BYTES >> 20))
    if ended.code < 0:
        return Answer(Status.CRASHED, "killed by %s" % _signal_name(-ended.code))
    if not ended.data:
        return Answer(Status.CRASHED, "exited with code %d without an answer" % ended.code)
    if len(ended.data) > MAX_ANSWER_BYTES:
        return Answer(Status.CRASHED, "its answer is larger than %d MiB" % (MAX_ANSWER_BYTES >> 20))
    try:
        answer = decode_answer(ended.data)
    except ContractError as error:
        return Answer(Status.CRASHED, "its answer is unreadable: %s" % error)
    if ended.code != 0 and answer.status is Status.OK:
        return Answer(Status.CRASHED, "exited with code %d after its answer" % ended.code)
    return answer


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number
