"""Counts calls by watching the Python interpreter make them.

It needs no profiler of a framework, works in every version of torch, and leaves nothing behind. It slows Python down
many times, so it is for calls that nobody times.
"""

import sys
from typing import Any, Callable

Wanted = Callable[[Any, str], bool]
"""Says of a call whether it counts, from the frame that makes it and the name of what it calls."""


def count_calls(function: Callable[[], object], wanted: Wanted) -> int:
    """Calls that Python code makes, in this thread, to compiled and to Python functions while `function` runs."""
    count = 0

    def watch(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        if event == "c_call":
            count += wanted(frame, getattr(argument, "__name__", ""))
        elif event == "call" and frame.f_back is not None:
            count += wanted(frame.f_back, frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def count_calls_of(name: str, function: Callable[[], object]) -> int:
    """How often a function of this name is called while `function` runs."""
    return count_calls(function, lambda _, called: called == name)
