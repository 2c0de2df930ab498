"""The queries behind the charts: what `taxmeter results sql` answers with the numbers that a chart shows.

Placeholders that the page fills in: `{metric}` is the column of the latency that is shown, `{where}` the condition of
the selection and of all filters. Of a trial only its last attempt is ok, and the second halves of A/A pairs
(`replicate` 1) are in no chart, so that both conditions are in every query. Ratios are no queries: how they are paired
and judged is one rule, and the charts of ratios have a command of `taxmeter compare` instead.
"""

# ruff: noqa: S608 -- these are texts for people, and what is put into them was quoted

import textwrap
from collections.abc import Iterable
from typing import Final

from orchestrator.analysis.axes import columns_of
from orchestrator.report.page.choosing import UNFLAGGED
from orchestrator.report.page.model import Page
from orchestrator.report.page.places import KEY
from orchestrator.report.page.roofs import NARROWER, PACES
from runners.contract.catalogue.roofs import GEMM, TRIAD, TRIAD_ARRAYS, TRIAD_LEAST_BYTES

_OK: Final = "status = 'ok' AND replicate = 0"
_LINE: Final = 100


def _listed(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(names), _LINE, subsequent_indent=9 * " ")


_CELL: Final = _listed(columns_of(KEY))
"""Whatever must not be pooled."""


def queries(page: Page) -> dict[str, str]:
    """By the name of the chart."""
    return {
        "latency": _medians(
            "median({metric}) AS latency_s, min({metric}) AS fastest_process_s,\n"
            "       max({metric}) AS slowest_process_s"
        ),
        "tax": _medians(
            "median(exposed_overhead_s) AS overhead_s, median(busy_s) AS busy_s,\n"
            "       median(latency_sync_median_s) AS sync_s, median(latency_pipelined_median_s) AS pipelined_s,\n"
            "       median(framework_fraction) AS fraction, median(boundedness) AS boundedness",
            "tax",
        ),
        "roofline": _roofline(without_flagged=page.without_flagged),
        "cells": _medians("median({metric}) AS latency_s, median(framework_fraction) AS fraction", "tax"),
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
