"""The same for many hosts, several at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from orchestrator.hosts.connection.ssh import Connections

MAX_AT_ONCE: Final = 16
"""A laptop can hold so many connections with ease, and a lab answers in one or two batches."""

Value = TypeVar("Value")
Result = TypeVar("Result")


def for_each(values: Iterable[Value], call: Callable[[Value], Result], connections: Connections) -> list[Result]:
    """What a function returns for each value, in the order of the values; it is called in threads.

    An exception, Ctrl-C among them, ends all connections: no interrupt reaches ssh, and a thread that waits for a host
    would else hold the command up until that host answers.

    Args:
        values: such as the names of hosts.
        call: uses no other connections.
        connections: that know all hosts.
    """
    with ThreadPoolExecutor(max_workers=MAX_AT_ONCE, thread_name_prefix="host") as pool:
        running = [pool.submit(call, value) for value in values]
        try:
            return [one.result() for one in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            connections.abort()
            raise
