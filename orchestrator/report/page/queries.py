"""The queries behind the charts: what `taxmeter results sql` answers with the numbers that a chart shows.

Placeholders that the page fills in: `{metric}` is the column of the latency that is shown, `{where}` the condition of
the selection and of all filters, `{beside}` the same without the filter of backends, `{elsewhere}` without that of
systems. Of a trial only its last attempt is ok, and the second halves of A/A pairs (`replicate` 1) are in no chart, so
that both conditions are in every query.
"""

# ruff: noqa: S608 -- these are texts for people, and what is put into them was quoted

import textwrap
from collections.abc import Iterable
from typing import Final

from orchestrator.analysis.axes import AXES, columns_of
from orchestrator.report.page.choosing import UNFLAGGED
from orchestrator.report.page.model import Page
from orchestrator.report.page.places import KEY
from orchestrator.report.page.ratios import OF_A_PLACE
from orchestrator.report.page.roofs import NARROWER, PACES
from runners.contract import TWIN_GROWTH
from runners.contract.catalogue.roofs import GEMM, TRIAD, TRIAD_ARRAYS, TRIAD_LEAST_BYTES
from runners.statistics.cycles import LEAST_CYCLES, QUIET_CYCLES

_OK: Final = "status = 'ok' AND replicate = 0"
_PLACE: Final = columns_of(one for one in KEY if one.name in OF_A_PLACE)
_ACROSS: Final = columns_of(one for one in KEY if one.name not in OF_A_PLACE)
"""What a cell has in common with that on the baseline system."""
_BACKEND: Final = AXES["backend"].columns
_BESIDE: Final = [name for name in columns_of(KEY) if name not in _BACKEND]
"""What a cell has in common with that of the baseline backend."""
_VISIT: Final = ("campaign_id", "host", "round")
_TURNS: Final = """CASE WHEN '{metric}' = 'latency_sync_median_s' AND session_id IS NOT NULL
              AND interleaving IS DISTINCT FROM 'alone' AND len(turn_samples) > 0
         THEN list_transform(range(1, len(turn_samples) + 1), lambda i: list_aggregate(list_slice(
           samples_sync_s, coalesce(list_sum(turn_samples[1:i - 1]), 0) + 1,
           list_sum(turn_samples[1:i])), 'median')) END"""
"""The medians of the turns of a trial."""
_CYCLES: Final = """list_sort(list_filter(list_transform(range(1, least(len(our_turns), len(their_turns)) + 1),
             lambda i: struct_pack(level := ln(their_turns[i]) + ln(our_turns[i]),
                                   ratio := ln(their_turns[i]) - ln(our_turns[i]))),
             lambda cycle: isfinite(cycle.level)))"""
_QUIET: Final = f"""list_slice({_CYCLES}, 1,
           greatest({LEAST_CYCLES}, ceil(len({_CYCLES}) / {QUIET_CYCLES}.0)::BIGINT))"""
"""The quietest cycles of a session, as `session_log_ratio` has them."""
_LINE: Final = 100


def _listed(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(names), _LINE, subsequent_indent=9 * " ")


def _packed(names: Iterable[str]) -> str:
    """Columns as one value: as such nulls are equal, so that rows can be joined on it."""
    return f"struct_pack({_listed(names)})"


_CELL: Final = _listed(columns_of(KEY))
"""Whatever must not be pooled."""


_HAS_FLOOR: Final = "device = 'cpu' AND dispatch_floor_valid AND common_floor_s > 0"
_FLOORED: Final = f"""WITH twins AS (
  SELECT *, min(dispatch_floor_small_s) OVER structure AS small_s, min(dispatch_floor_large_s) OVER structure AS large_s
  FROM trials
  WHERE {_OK} AND dispatch_floor_structure IS NOT NULL
  AND {{where}}
  WINDOW structure AS (PARTITION BY system_id, environment_id, isolation, method_version, dispatch_floor_structure,
                       dispatch_floor_valid)
), floors AS (
  SELECT trial_id, attempt,
         least(small_s, ({TWIN_GROWTH} * small_s - large_s) / {TWIN_GROWTH - 1}) AS common_floor_s
  FROM twins
), floored AS (
  SELECT * REPLACE (
    CASE WHEN {_HAS_FLOOR} THEN common_floor_s ELSE exposed_overhead_s END AS exposed_overhead_s,
    CASE WHEN {_HAS_FLOOR} THEN least(1, common_floor_s / latency_sync_median_s) ELSE framework_fraction END
      AS framework_fraction)
  FROM trials LEFT JOIN floors USING (trial_id, attempt)
)
"""
"""Trials with the floor that all of a structure share, as `with_common_floors` has it."""


def queries(page: Page) -> dict[str, str]:
    """By the name of the chart; those of ratios only if there is a baseline."""
    found = {
        "latency": _medians(
            "median({metric}) AS latency_s, min({metric}) AS fastest_process_s,\n"
            "       max({metric}) AS slowest_process_s"
        ),
        "tax": _FLOORED
        + _medians(
            "median(exposed_overhead_s) AS overhead_s, median(busy_s) AS busy_s,\n"
            "       median(latency_sync_median_s) AS sync_s, median(latency_pipelined_median_s) AS pipelined_s,\n"
            "       median(framework_fraction) AS fraction, median(boundedness) AS boundedness",
            "floored",
        ),
        "roofline": _roofline(without_flagged=page.without_flagged),
        "cells": _FLOORED
        + _medians("median({metric}) AS latency_s, median(framework_fraction) AS fraction", "floored"),
        "failures": """SELECT status, reason, host, environment, count(*) AS attempts
FROM trials
WHERE status <> 'ok' AND {where}
GROUP BY ALL ORDER BY attempts DESC""",
        "flagged": """SELECT guard, host, count(*) AS trials
FROM (SELECT unnest(guard_flags) AS guard, host FROM trials WHERE {where})
GROUP BY ALL ORDER BY trials DESC""",
        "systems": """SELECT * FROM systems
WHERE system_id IN (SELECT system_id FROM trials WHERE {where})""",
        "samples": f"""SELECT campaign_id, host, round, mode, position, duration_s
FROM samples
WHERE trial_id IN (SELECT trial_id FROM trials WHERE {_OK}
  AND {{where}})
  AND mode IN ('sync', 'pipelined')
ORDER BY ALL""",
    }
    if page.baselines.backend is not None:
        found["speedups"] = _of_backends(page.backends[page.baselines.backend].sql)
    if page.baselines.system is not None:
        found["hardware"] = _of_systems(page.systems[page.baselines.system].system_id)
    return found


def _medians(expressions: str, table: str = "trials") -> str:
    return f"""SELECT {_CELL},
       count(*) AS processes, {expressions}
FROM {table}
WHERE {_OK}
  AND {{where}}
GROUP BY ALL ORDER BY ALL"""


def _roofline(*, without_flagged: bool) -> str:
    """Rates, and beside them the roofs of their systems, which are looked for in all campaigns (`roofs_of`)."""
    threads = "CASE device WHEN 'cpu' THEN threads ELSE 0 END AS roof_threads"
    seconds = ", ".join(f"median({name})" for name in PACES)
    narrower = ", ".join(f"'{name}'" for name in NARROWER)
    only = f"\n    AND {UNFLAGGED}" if without_flagged else ""
    return f"""WITH rates AS (
  SELECT campaign_id, trial_key, system_id, device, dtype, {threads},
         coalesce({seconds}) AS call_s,
         any_value(2 * batch * CAST(workload_options ->> 'width' AS BIGINT) ** 3)
           FILTER (workload = '{GEMM}') / call_s AS flop_per_s,
         any_value({TRIAD_ARRAYS} * batch * CAST(workload_options ->> 'elements' AS BIGINT)
           * CASE dtype WHEN 'float32' THEN 4 ELSE 2 END) FILTER (workload = '{TRIAD}') AS moved_bytes,
         CASE WHEN moved_bytes >= {TRIAD_LEAST_BYTES} THEN moved_bytes / call_s END AS bytes_per_s
  FROM trials
  WHERE {_OK} AND workload IN ('{GEMM}', '{TRIAD}')
    AND backend NOT IN ({narrower}){only}
  GROUP BY ALL
), arithmetic AS (
  SELECT system_id, device, roof_threads, dtype,
         max(flop_per_s) AS roof_flop_per_s, arg_max(campaign_id, flop_per_s) AS roof_flop_campaign
  FROM rates GROUP BY ALL
), memory AS (
  SELECT system_id, device, roof_threads,
         max(bytes_per_s) AS roof_bytes_per_s, arg_max(campaign_id, bytes_per_s) AS roof_bytes_campaign
  FROM rates GROUP BY ALL
), cells AS (
  SELECT {_CELL}, {threads},
         count(*) AS processes, any_value(flops) / nullif(any_value(weight_bytes), 0) AS flop_per_weight_byte,
         any_value(flops) / median(busy_s) AS kernel_rate,
         any_value(flops) / median(latency_pipelined_median_s) AS pipelined_rate,
         any_value(flops) / median(latency_sync_median_s) AS sync_rate
  FROM trials
  WHERE {_OK}
  AND {{where}}
  GROUP BY ALL
)
SELECT *, CASE WHEN flop_per_weight_byte > 0
         THEN least(roof_flop_per_s, roof_bytes_per_s * flop_per_weight_byte) END AS roof_here
FROM cells LEFT JOIN arithmetic USING (system_id, device, roof_threads, dtype)
  LEFT JOIN memory USING (system_id, device, roof_threads)
ORDER BY ALL"""


def _of_backends(baseline: str) -> str:
    """As `ratio_of` has it: over shared sessions in turns, else over shared rounds, else over all processes of both."""
    backend = ", ".join(_BACKEND)
    return f"""WITH ours AS (
  SELECT {_packed(_BESIDE)} AS cell,
         {_packed(_VISIT)} AS visit, session_id, {backend}, ln({{metric}}) AS our_log,
         {_TURNS} AS our_turns
  FROM trials WHERE {_OK} AND {{metric}} IS NOT NULL
  AND {{where}}
  AND NOT ({baseline})
), theirs AS (
  SELECT {_packed(_BESIDE)} AS cell,
         {_packed(_VISIT)} AS visit, session_id, ln({{metric}}) AS their_log,
         {_TURNS} AS their_turns
  FROM trials WHERE {_OK} AND {{metric}} IS NOT NULL
  AND {{beside}}
  AND {baseline}
), cells AS (
  SELECT cell, {backend}, count(*) AS processes,
         avg(our_log) AS our_mean, count(their_log) AS shared_rounds,
         avg(their_log - our_log) AS within_rounds
  FROM ours LEFT JOIN theirs USING (cell, visit) GROUP BY ALL
), sessions AS (
  SELECT cell, {backend}, count(*) AS shared_sessions,
         avg(list_aggregate(list_transform({_QUIET}, lambda cycle: cycle.ratio), 'median')) AS within_sessions
  FROM ours JOIN theirs USING (cell, session_id)
  WHERE our_turns IS NOT NULL AND their_turns IS NOT NULL GROUP BY ALL
), baselines AS (
  SELECT cell, count(*) AS baseline_processes,
         avg(their_log) AS baseline_mean
  FROM theirs GROUP BY ALL
)
SELECT unnest(cell), {backend}, processes, baseline_processes, shared_sessions, shared_rounds,
       CASE WHEN 2 * shared_sessions >= least(processes, baseline_processes) THEN 'turns'
            WHEN shared_rounds >= 2 AND 2 * shared_rounds >= least(processes, baseline_processes)
            THEN 'rounds' ELSE 'unpaired' END AS pairing,
       exp(CASE pairing WHEN 'turns' THEN within_sessions WHEN 'rounds' THEN within_rounds
           ELSE baseline_mean - our_mean END) AS speedup
FROM cells JOIN baselines USING (cell) LEFT JOIN sessions USING (cell, {backend})
ORDER BY ALL"""


def _of_systems(system_id: str) -> str:
    """The ratio of the geometric means of both sides, in the environments that the page has correspond."""
    return f"""WITH ours AS (
  SELECT {_packed(_PLACE)} AS place,
         {_packed(_ACROSS)} AS work,
         count(*) AS processes, avg(ln({{metric}})) AS our_mean
  FROM trials WHERE {_OK} AND {{metric}} IS NOT NULL
  AND {{where}}
  AND system_id IS DISTINCT FROM '{system_id}' GROUP BY ALL
), theirs AS (
  SELECT environment AS baseline_environment, environment_id AS baseline_environment_id,
         {_packed(_ACROSS)} AS work,
         count(*) AS baseline_processes, avg(ln({{metric}})) AS baseline_mean
  FROM trials WHERE {_OK} AND {{metric}} IS NOT NULL
  AND {{elsewhere}}
  AND system_id = '{system_id}' GROUP BY ALL
), pairs AS (
  SELECT *, CASE WHEN baseline_environment_id = place.environment_id THEN 0
                 WHEN baseline_environment = place.environment THEN 1 ELSE 2 END AS distance
  FROM ours JOIN theirs USING (work)
)
SELECT unnest(place), unnest(work), baseline_environment, baseline_environment_id,
       processes, baseline_processes, exp(baseline_mean - our_mean) AS speedup
FROM pairs
QUALIFY distance = min(distance) OVER (PARTITION BY place, work)
  AND count(*) OVER (PARTITION BY place, work, distance) = 1
ORDER BY ALL"""
