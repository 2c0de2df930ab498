"""Check 5: how deep is the launch queue, what do an empty call and a wait cost, and is a call that waits noticed?"""

import statistics
import time
from typing import Any, Callable, Dict, List, Optional

from runners.check.running import Context, Findings, forked
from runners.examination.profiler import QUEUED_LAUNCHES, profile

_BLOCKED_CYCLES = 400_000_000
"""Of the GPU's clock: about 200 ms, longer than it takes to queue what is queued meanwhile."""
_STALL_NS = 5_000_000
_COUNTS = (256, 512, 1024, 2048, 4096, 8192)
_REPEATS = 300


def check(context: Context) -> Findings:
    """Depth of the queue, costs in microseconds, and what the trace says about a call with `.item()`."""
    found = Findings()
    values, problem = forked(_look, context.within(60))
    if values is None:
        found.problems.append("the queue: %s" % problem)
        return found
    found.values = values
    depth = values["depth"]
    found.require(
        depth is None or depth >= QUEUED_LAUNCHES,
        "a launch waited after %s others; calls of up to %d are believed" % (depth, QUEUED_LAUNCHES),
    )
    found.require(
        values["item"]["waits"] == 1, "a call with .item() waits %s times by its trace" % values["item"]["waits"]
    )
    found.require(values["plain"]["waits"] == 0, "a call without waits %s times" % values["plain"]["waits"])
    return found


def _look() -> Dict[str, Any]:
    import torch

    x = torch.zeros(16, device="cuda")
    # The first launch of a kernel loads it, and waits for the device
    x.add_(1)
    torch.cuda.synchronize()
    depths = {count: _stalled_at(x, count) for count in _COUNTS}
    stalls = [depth for depth in depths.values() if depth is not None]
    return {
        "depth": min(stalls, default=None),
        "stalled_at": depths,
        "empty_call_us": _cost_us(lambda: None),
        "synchronize_us": _cost_us(torch.cuda.synchronize),
        "launch_and_synchronize_us": _cost_us(lambda: (x.add_(1), torch.cuda.synchronize())),
        "item": _waiting(lambda: x.add_(1).sum().item()),
        "plain": _waiting(lambda: x.add_(1).sum()),
    }


def _stalled_at(x: Any, count: int) -> Optional[int]:
    """Launches until one of them waited for the device, which is kept from working; null if none did."""
    import torch

    torch.cuda.synchronize()
    torch.cuda._sleep(_BLOCKED_CYCLES)
    times: List[int] = []
    last = time.perf_counter_ns()
    for _ in range(count):
        x.add_(1)
        now = time.perf_counter_ns()
        times.append(now - last)
        last = now
    torch.cuda.synchronize()
    return next((index for index, taken in enumerate(times) if taken > _STALL_NS), None)


def _cost_us(call: Callable[[], Any]) -> float:
    taken = []
    for _ in range(_REPEATS):
        start = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1e3


def _waiting(call: Callable[[], Any]) -> Dict[str, Any]:
    import torch

    facts = profile(lambda *_: call(), [()], torch.cuda.synchronize, 5)
    return {"waits": facts.get("waits"), "launches": facts.get("launches"), "problem": facts.get("profiler_problem")}
