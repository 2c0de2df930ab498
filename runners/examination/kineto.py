"""Reads the trace that torch.profiler writes: the JSON of Chrome's tracing, filled by Kineto.

Categories were renamed over the years (`Kernel`, `Runtime` and `Operator` in torch 1.x); both spellings are read. Times
are microseconds: whole ones in old traces, with three decimals since torch 2.4.
"""

import bisect
import json
import re
from decimal import Decimal
from typing import Any, Dict, List, Optional, Sequence, Tuple

from runners.examination.trace import Activity, ActivityKind, Launch, Trace, is_launch

ITERATION = "iteration"
"""Name of the annotation around each profiled call and its synchronisation."""
REPLAY = "replay"
"""The same around each replay of the call as a graph."""

_ACTIVITIES = {
    "kernel": ActivityKind.KERNEL,
    "gpu_memcpy": ActivityKind.MEMCPY,
    "memcpy": ActivityKind.MEMCPY,
    "gpu_memset": ActivityKind.MEMSET,
    "memset": ActivityKind.MEMSET,
}
_WAIT = re.compile(
    r"cuda(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize|cudaMemcpy|cuMemcpy[DH]to[DH]_v2"
)
_OCCUPANCY = "est. achieved occupancy %"
_RUNTIME = ("cuda_runtime", "cuda_driver", "runtime")
_OPERATORS = ("cpu_op", "operator")
_ANNOTATIONS = ("user_annotation", "cpu_op", "operator")

Event = Dict[str, Any]
Span = Tuple[int, int]


class TraceError(Exception):
    """This is no trace; the message says why."""


def load(path: str) -> Any:
    """Decodes a trace file.

    Raises:
        TraceError: it is no JSON.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            # As decimals: microseconds since the epoch with three decimals do not fit a float
            return json.load(file, parse_float=Decimal)
    except ValueError as error:
        raise TraceError("the profiler's trace is no JSON: %s" % error) from None


def parse(document: Any, annotation: str = ITERATION) -> Trace:
    """Takes what matters out of a decoded trace.

    Args:
        document: what `load` returned.
        annotation: name of what is around each iteration.

    Raises:
        TraceError: it holds no events.
    """
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise TraceError("the profiler's trace has no list of events")
    complete = [event for event in events if event.get("ph") == "X" and "ts" in event and "dur" in event]
    iterations = sorted(_span(e) for e in complete if e.get("name") == annotation and _category(e) in _ANNOTATIONS)
    calls = _runtime_calls(complete)
    fine = any(not isinstance(event[key], int) for event in complete for key in ("ts", "dur"))
    return Trace(
        iterations=len(iterations),
        activities=tuple(_activity(e, calls, iterations) for e in complete if _category(e) in _ACTIVITIES),
        launches=tuple(
            Launch(name, start_ns, correlation, _containing(iterations, start_ns))
            for correlation, (start_ns, name) in calls.items()
            if is_launch(name)
        ),
        operators=tuple(_top_level(complete, iterations)) if fine else None,
        resolution_ns=1 if fine else 1000,
        waits=tuple(_per_iteration(iterations, [start for start, name in calls.values() if _WAIT.fullmatch(name)])),
    )


def _runtime_calls(events: Sequence[Event]) -> Dict[int, Tuple[int, str]]:
    """Start and name of each call of the runtime or driver, by correlation.

    A call of the runtime and the call of the driver inside it share their number: the outer one counts.
    """
    calls: Dict[int, Tuple[int, str]] = {}
    for event in events:
        correlation = _number(event, "correlation")
        if _category(event) not in _RUNTIME or correlation is None:
            continue
        call = (_ns(event["ts"]), str(event.get("name")))
        if correlation not in calls or call < calls[correlation]:
            calls[correlation] = call
    return calls


def _activity(event: Event, calls: Dict[int, Tuple[int, str]], iterations: Sequence[Span]) -> Activity:
    start_ns, end_ns = _span(event)
    correlation = _number(event, "correlation")
    # The device may work on an iteration after its end: what counts is when the host asked for it
    asked_ns = calls[correlation][0] if correlation in calls else start_ns
    return Activity(
        kind=_ACTIVITIES[_category(event)],
        start_ns=start_ns,
        duration_ns=end_ns - start_ns,
        correlation=correlation,
        stream=_number(event, "stream"),
        iteration=_containing(iterations, asked_ns),
        occupancy=_share((event.get("args") or {}).get(_OCCUPANCY)),
    )


def _share(percent: Any) -> Optional[float]:
    return float(percent) / 100 if isinstance(percent, (int, Decimal)) else None


def _per_iteration(iterations: Sequence[Span], times_ns: Sequence[int]) -> List[int]:
    counts = [0] * len(iterations)
    for time_ns in times_ns:
        iteration = _containing(iterations, time_ns)
        if iteration is not None:
            counts[iteration] += 1
    return counts


def _top_level(events: Sequence[Event], iterations: Sequence[Span]) -> List[int]:
    threads: Dict[Any, List[Span]] = {}
    for event in events:
        if _category(event) in _OPERATORS and str(event.get("name")).startswith("aten::"):
            threads.setdefault((event.get("pid"), event.get("tid")), []).append(_span(event))
    outermost: List[int] = []
    for spans in threads.values():
        outer_end = None
        for start_ns, end_ns in sorted(spans, key=lambda span: (span[0], -span[1])):
            if outer_end is not None and start_ns < outer_end:
                continue
            outer_end = end_ns
            outermost.append(start_ns)
    return _per_iteration(iterations, outermost)


def _containing(iterations: Sequence[Span], time_ns: int) -> Optional[int]:
    index = bisect.bisect_right([start for start, _ in iterations], time_ns) - 1
    return index if index >= 0 and time_ns < iterations[index][1] else None


def _category(event: Event) -> str:
    return str(event.get("cat", "")).lower()


def _number(event: Event, key: str) -> Optional[int]:
    value = (event.get("args") or {}).get(key)
    return value if isinstance(value, int) else None


def _span(event: Event) -> Span:
    start_ns = _ns(event["ts"])
    return start_ns, start_ns + _ns(event["dur"])


def _ns(microseconds: Any) -> int:
    return round(Decimal(str(microseconds)) * 1000)
