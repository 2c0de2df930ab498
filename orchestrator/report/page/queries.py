"""The queries behind the charts: what `taxmeter results sql` answers with the numbers that a chart shows.

Placeholders that the page fills in: `{metric}` is the column of the latency that is shown, `{where}` the condition of
the selection and of all filters, `{beside}` the same without the filter of backends, `{elsewhere}` without that of
systems. Of a trial only its last attempt is ok, and the second halves of A/A pairs (`replicate` 1) are in no chart, so
that both conditions are in every query.
"""

# ruff: noqa: S608 -- these are texts for people, and what is put into them was quoted

from typing import Final

from orchestrator.report.page.choosing import UNFLAGGED
from orchestrator.report.page.model import Page
from orchestrator.report.page.roofs import NARROWER, PACES
from runners.contract.catalogue.roofs import GEMM, TRIAD, TRIAD_ARRAYS, TRIAD_LEAST_BYTES

_OK: Final = "status = 'ok' AND replicate = 0"
_CELL: Final = """system_id, environment, workload, workload_options, sequence_length, image_size,
       dtype, threads, backend, backend_options, batch"""
# Nulls equal nothing, so that sizes which a workload does not have are 0 where rows are joined.
_WORK: Final = """workload, workload_options, coalesce(sequence_length, 0) AS tokens,
         coalesce(image_size, 0) AS pixels, dtype, device, threads, seed, protocol, batch"""
_SAME_WORK: Final = """workload, workload_options, tokens, pixels, dtype, device, threads, seed, protocol, batch"""


def queries(page: Page) -> dict[str, str]:
    """By the name of the chart; those of ratios only if there is a baseline."""
    found = {
        "latency": _medians(
            "median({metric}) AS latency_s, min({metric}) AS fastest_process_s,\n"
            "       max({metric}) AS slowest_process_s"
        ),
        "tax": _medians(
            "median(exposed_overhead_s) AS overhead_s, median(busy_s) AS busy_s,\n"
            "       median(latency_sync_median_s) AS sync_s, median(latency_pipelined_median_s) AS pipelined_s,\n"
            "       median(framework_fraction) AS fraction, median(boundedness) AS boundedness"
        ),
        "roofline": _roofline(without_flagged=page.without_flagged),
        "cells": _medians("median({metric}) AS latency_s, median(framework_fraction) AS fraction"),
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


def _medians(expressions: str) -> str:
    return f"""SELECT {_CELL},
       count(*) AS processes, {expressions}
FROM trials
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
  SELECT {_CELL}, device, {threads},
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
    """The geometric mean over the rounds that both sides ran."""
    round_of = "campaign_id, host, round, system_id, environment_id"
    return f"""WITH ours AS (
  SELECT {round_of}, backend, backend_options,
         {_WORK},
         {{metric}} AS ours_s
  FROM trials WHERE {_OK}
  AND {{where}}
), theirs AS (
  SELECT {round_of},
         {_WORK},
         {{metric}} AS theirs_s
  FROM trials WHERE {_OK}
  AND {{beside}}
  AND {baseline}
)
SELECT system_id, workload, workload_options, tokens, pixels, dtype, threads, backend, backend_options,
       batch, count(*) AS rounds, exp(avg(ln(theirs_s / ours_s))) AS speedup
FROM ours JOIN theirs USING ({round_of},
  {_SAME_WORK})
GROUP BY ALL ORDER BY ALL"""


def _of_systems(system_id: str) -> str:
    """The ratio of the geometric means over the processes of both sides."""
    return f"""WITH ours AS (
  SELECT system_id, backend, backend_options,
         {_WORK},
         exp(avg(ln({{metric}}))) AS ours_s, count(*) AS processes
  FROM trials WHERE {_OK}
  AND {{where}}
  AND system_id <> '{system_id}' GROUP BY ALL
), theirs AS (
  SELECT backend, backend_options,
         {_WORK},
         exp(avg(ln({{metric}}))) AS theirs_s, count(*) AS baseline_processes
  FROM trials WHERE {_OK}
  AND {{elsewhere}}
  AND system_id = '{system_id}' GROUP BY ALL
)
SELECT system_id, workload, workload_options, tokens, pixels, dtype, backend, backend_options, batch,
       processes, baseline_processes, theirs_s / ours_s AS speedup
FROM ours JOIN theirs USING (backend, backend_options,
  {_SAME_WORK})
ORDER BY ALL"""
