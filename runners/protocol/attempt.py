"""A pass after timing that may fail without costing the trial: what was timed is right whatever it says."""

from typing import Callable, Dict

from runners.contract.record import FactValue

Facts = Dict[str, FactValue]

_MAX_LENGTH = 500


def attempted(name: str, function: Callable[[], Facts]) -> Facts:
    """The facts of a pass, or `<name>_problem` with what it raised."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - the row says what happened, and the other passes go on
        return {name + "_problem": one_line(error)}


def one_line(error: BaseException) -> str:
    """An exception as text for a row."""
    return ("%s: %s" % (type(error).__name__, " ".join(str(error).split())))[:_MAX_LENGTH]
