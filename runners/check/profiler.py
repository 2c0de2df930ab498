"""Check 4: does a profiler slow down what comes after it, and how often does it lose or misplace kernels?"""

import statistics
import time
from dataclasses import replace
from functools import partial
from typing import Any, Dict, List

from runners.backends.cuda_graphs import capture
from runners.check.running import Context, Findings, forked
from runners.check.subjects import BERT, PROTOCOL, RESNET, Ready, ready, sized, spec_of
from runners.contract import WorkloadSpec
from runners.examination.profiler import profile
from runners.protocol import timing

_PROFILES = 10
_PROFILES_SMALL = 3
_CALLS = 10
_SLOWER = 1.03
_NOISE = 1.1


def check(context: Context) -> Findings:
    """By model: times of a graph before and after a profiler, and what fresh processes see."""
    found = Findings()
    for workload in (BERT, RESNET):
        values, problem = forked(partial(_around, sized(workload, context.size)), context.within(60))
        found.values[workload.name] = values
        found.require(problem is None, "%s: %s" % (workload.name, problem))
        if values is None:
            continue
        # What follows the profiler in its own process is what our order of passes avoids: told, not required
        found.require(
            values["busy_s"] is None or values["busy_s"] <= _NOISE * values["sync_s"],
            "%s: the device is busy for longer than a call takes" % workload.name,
        )
        found.require(
            values["graph_before_s"] <= _NOISE * values["pipelined_s"], "%s: T_graph > T_pipe" % workload.name
        )
    profiles = []
    for _ in range(_PROFILES_SMALL if context.size.is_small else _PROFILES):
        if context.left_s < 8:
            break
        values, problem = forked(partial(_profiled, sized(BERT, context.size)), context.within(30))
        profiles.append(values if values is not None else {"profiler_valid": False, "profiler_problem": problem})
    found.values["profiles"] = _summary(profiles)
    found.require(found.values["profiles"]["valid"] > 0, "no profile of %d is valid" % len(profiles))
    return found


def _around(workload: WorkloadSpec) -> Dict[str, Any]:
    with ready(spec_of(workload)) as trial:
        sync = timing.time_sync(trial.subject, PROTOCOL, trial.last_ns)
        values: Dict[str, Any] = {
            "sync_s": _median_s(sync),
            "pipelined_s": _median_s(timing.time_pipelined(trial.subject, PROTOCOL, timing.median_ns(sync))),
            "graph_before_s": _graph_s(trial),
        }
        facts = profile(trial.subject.call, trial.subject.ring, trial.subject.synchronize, _CALLS)
        values.update((name, facts.get(name)) for name in ("busy_s", "profiler_valid", "profiler_problem", "launches"))
        values["graph_after_s"] = _graph_s(trial)
        values["pipelined_after_s"] = _median_s(timing.time_pipelined(trial.subject, PROTOCOL, timing.median_ns(sync)))
    values["slower_after_the_profiler"] = {
        "graph": values["graph_after_s"] / values["graph_before_s"],
        "pipelined": values["pipelined_after_s"] / values["pipelined_s"],
        "matters": values["pipelined_after_s"] / values["pipelined_s"] > _SLOWER,
    }
    return values


def _graph_s(trial: Ready) -> float:
    captured = capture(trial.subject.call, trial.subject.ring[0])
    replayed = replace(trial.subject, call=lambda *_: captured.graph.replay())
    return _median_s(timing.time_pipelined(replayed, PROTOCOL, trial.last_ns, "graph"))


def _profiled(workload: WorkloadSpec) -> Dict[str, Any]:
    start = time.monotonic()
    with ready(spec_of(workload)) as trial:
        facts = profile(trial.subject.call, trial.subject.ring, trial.subject.synchronize, _CALLS)
    return dict(facts, seconds=time.monotonic() - start)


def _summary(profiles: List[Dict[str, Any]]) -> Dict[str, Any]:
    busy = [each["busy_s"] for each in profiles if each.get("busy_s")]
    skews = sorted(each["profiler_early_max_us"] for each in profiles if each.get("profiler_early_max_us") is not None)
    return {
        "count": len(profiles),
        "valid": sum(each.get("profiler_valid") is True for each in profiles),
        "problems": sorted({str(each["profiler_problem"]) for each in profiles if each.get("profiler_problem")}),
        "early_max_us": skews,
        "busy_s": busy,
        "busy_spread": (max(busy) - min(busy)) / statistics.median(busy) if busy else None,
    }


def _median_s(series: Any) -> float:
    return timing.median_ns(series) / 1e9
