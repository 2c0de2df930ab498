"""Check 8: does BERT-base in float16 go from framework-bound to compute-bound with the batch, as the paper says?"""

import os
from dataclasses import replace
from typing import Dict, List, Optional

from runners.check import rows
from runners.check.cells import values_of
from runners.check.running import ROWS, Context, Findings
from runners.check.subjects import BERT, sized, spec_of
from runners.contract import Status, TrialRecord

# The ends first: a run that is cut short tells what matters
_BATCHES = (1, 128, 16, 64, 4, 32, 8, 2)
_BATCHES_QUICK = (1, 128, 16)
_BATCHES_REHEARSED = (1, 2)
_FLAT = 0.05
_AGREE = 0.1

Point = Dict[str, Optional[float]]


def check(context: Context) -> Findings:
    """By batch: the times of a call, boundedness, and both estimates of the exposed overhead."""
    found = Findings()
    batches = _BATCHES_REHEARSED if context.size.rehearse else _BATCHES_QUICK if context.size.quick else _BATCHES
    specs = [spec_of(replace(sized(BERT, context.size), batch=batch), "float16") for batch in batches]
    reached, printed = rows.run_task(os.path.join(context.out, ROWS), "transition", specs, context.left_s - 4)
    if len(reached) < len(specs):
        found.problems.append("%d of %d batches were reached: %s" % (len(reached), len(specs), printed[-300:]))
    points: Dict[int, Point] = {}
    for spec, record in reached:
        points[spec.workload.batch] = point_of(record)
        problem = record.facts.get("dispatch_problem")
        if record.status is not Status.OK:
            problem = "%s: %s" % (record.status.value, record.reason)
        if problem:
            found.problems.append("batch %d: %s" % (spec.workload.batch, problem))
    found.values["by_batch"] = points
    _judge(found, points)
    return found


def point_of(record: TrialRecord) -> Point:
    """Times of a call in microseconds, and boundedness: null where the record says that a part of it is not right."""
    values, facts = values_of(record), record.facts
    point: Point = {name: values.get("T_%s_us" % name) for name in ("sync", "pipelined", "dispatch", "graph")}
    if facts.get("dispatch_problem"):
        point["dispatch"] = None
    busy_s = facts.get("busy_s") if facts.get("profiler_valid") else None
    point["busy"] = busy_us = busy_s * 1e6 if isinstance(busy_s, float) else None
    point["boundedness"] = point["dispatch"] / busy_us if point["dispatch"] and busy_us else None
    return point


def _judge(found: Findings, points: Dict[int, Point]) -> None:
    known = {batch: point for batch, point in points.items() if point["boundedness"]}
    loads: List[float] = [float(point["boundedness"] or 0) for _, point in sorted(known.items())]
    found.values["crosses"] = bool(loads) and loads[0] > 1 > loads[-1]
    found.require(found.values["crosses"], "boundedness does not cross 1: %s" % loads)
    free = [float(point["dispatch"] or 0) for point in known.values() if (point["boundedness"] or 0) > 1]
    if len(free) > 1:
        found.values["dispatch_spread_while_framework_bound"] = (max(free) - min(free)) / min(free)
        found.values["dispatch_is_flat"] = found.values["dispatch_spread_while_framework_bound"] <= _FLAT
    for batch, point in points.items():
        pipelined, graph, busy = point["pipelined"], point["graph"], point["busy"]
        if pipelined and graph:
            found.require(graph <= 1.1 * pipelined, "batch %d: T_graph > T_pipe" % batch)
            if busy:
                difference = abs((pipelined - busy) - (pipelined - graph)) / pipelined
                points[batch]["overheads_differ"] = difference
    agree = [
        float(point["overheads_differ"] or 0) <= _AGREE for point in points.values() if "overheads_differ" in point
    ]
    found.values["overheads_agree"] = "%d of %d" % (sum(agree), len(agree))
