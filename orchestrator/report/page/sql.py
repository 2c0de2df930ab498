"""SQL on a page: what chooses its trials, and the queries behind the charts, which `taxmeter results sql` answers.

A query answers with the numbers that its chart shows. Placeholders that the page fills in: `{metric}` is the column of
the latency that is shown, `{where}` the condition of the selection and of all filters. Of a trial only its last attempt
is ok, and the second halves of A/A pairs (`replicate` 1) are in no chart, so that both conditions are in every query.
Ratios are no queries: how they are paired and judged is one rule, and the charts of ratios have a command of
`taxmeter compare` instead.
"""

# ruff: noqa: S608 -- these are texts for people, and what is put into them was quoted

import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from orchestrator.analysis.axes import grouped
from orchestrator.analysis.explanation.call import NARROWER
from runners.contract.catalogue.roofs import GEMM, TRIAD, TRIAD_ARRAYS, TRIAD_LEAST_BYTES

AND: Final = "\n  AND "
"""Between conditions: one on each line."""
UNFLAGGED: Final = "coalesce(len(guard_flags), 0) = 0"
"""Trials that no guard flagged, those among them that none watched."""
_OK: Final = "status = 'ok' AND replicate = 0"
_LINE: Final = 100
_PACES: Final = ("busy_s", "latency_pipelined_median_s", "latency_sync_median_s")
"""The time of a call, the first that was measured: on a GPU that in which the device works. A processor is given no
floor back, for it is a millionth of such calls."""
_ROOF_THREADS: Final = "CASE device WHEN 'cpu' THEN threads ELSE 0 END AS roof_threads"


def queries(key: Sequence[str], *, without_flagged: bool) -> dict[str, str]:
    """By the name of the chart."""
    cell = textwrap.fill(", ".join(key), _LINE, subsequent_indent=9 * " ")
    return {
        "latency": _medians(
            cell,
            "median({metric}) AS latency_s, min({metric}) AS fastest_process_s,\n"
            "       max({metric}) AS slowest_process_s",
        ),
        "tax": _medians(
            cell,
            "median(exposed_overhead_s) AS overhead_s, median(busy_s) AS busy_s,\n"
            "       median(latency_sync_median_s) AS sync_s, median(latency_pipelined_median_s) AS pipelined_s,\n"
            "       median(framework_fraction) AS fraction, median(boundedness) AS boundedness",
            "tax",
        ),
        "roofline": _roofline(cell, without_flagged=without_flagged),
        "cells": _medians(cell, "median({metric}) AS latency_s, median(framework_fraction) AS fraction", "tax"),
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


def _medians(cell: str, expressions: str, table: str = "trials") -> str:
    return f"""SELECT {cell},
       count(*) AS processes, {expressions}
FROM {table}
WHERE {_OK}
  AND {{where}}
GROUP BY ALL ORDER BY ALL"""


def _roofline(cell: str, *, without_flagged: bool) -> str:
    """Rates, and beside them the roofs of their systems, which are looked for in all campaigns (`roofs_of`)."""
    return f"""WITH rates AS (
  {rates_query(without_flagged=without_flagged)}
), arithmetic AS (
  SELECT system_id, device, roof_threads, dtype,
         max(flop_per_s) AS roof_flop_per_s, arg_max(campaign_id, flop_per_s) AS roof_flop_campaign
  FROM rates GROUP BY ALL
), memory AS (
  SELECT system_id, device, roof_threads,
         max(bytes_per_s) AS roof_bytes_per_s, arg_max(campaign_id, bytes_per_s) AS roof_bytes_campaign
  FROM rates GROUP BY ALL
), cells AS (
  SELECT {cell}, {_ROOF_THREADS},
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


def rates_query(*, without_flagged: bool, columns: str = "") -> str:
    """What products of matrices and triads reach: the rates of each configuration of a campaign."""
    seconds = ", ".join(f"median({name})" for name in _PACES)
    narrower = ", ".join(f"'{name}'" for name in sorted(NARROWER))
    only = f"\n    AND {UNFLAGGED}" if without_flagged else ""
    return f"""SELECT campaign_id, trial_key, system_id, device, dtype, threads, {_ROOF_THREADS},
         nullif(coalesce({seconds}), 0) AS call_s,
         any_value(2 * batch * CAST(workload_options ->> 'width' AS BIGINT) ** 3)
           FILTER (workload = '{GEMM}') / call_s AS flop_per_s,
         any_value({TRIAD_ARRAYS} * batch * CAST(workload_options ->> 'elements' AS BIGINT)
           * CASE dtype WHEN 'float32' THEN 4 ELSE 2 END) FILTER (workload = '{TRIAD}') AS moved_bytes,
         CASE WHEN moved_bytes >= {TRIAD_LEAST_BYTES} THEN moved_bytes / call_s END AS bytes_per_s{columns}
  FROM trials
  WHERE {_OK} AND system_id IS NOT NULL AND workload IN ('{GEMM}', '{TRIAD}')
    AND backend NOT IN ({narrower}){only}
  GROUP BY ALL"""


def sql_values(columns: Sequence[str], tuples: Collection[tuple[Any, ...]]) -> str:
    """A condition in SQL: these columns have one of these combinations of values."""
    branches: list[list[str]] = []
    for values in sorted(set(tuples), key=repr):
        branches.append([_equal(name, value) for name, value in zip(columns, values, strict=True)])
    if len(branches) == 1:
        return AND.join(branches[0])
    if len(columns) == 1 and not any(value is None for (value,) in tuples):
        listed = ", ".join(sorted({_literal(values[0]) for values in tuples}))
        return f"{columns[0]} IN ({listed})"
    return "(" + " OR ".join(f"({' AND '.join(parts)})" if len(parts) > 1 else parts[0] for parts in branches) + ")"


def raw_values(
    rows: Iterable[Mapping[str, Any]], key: Callable[[Mapping[str, Any]], Any], columns: Sequence[str]
) -> dict[Any, set[tuple[Any, ...]]]:
    """What stands in some columns, by key."""
    return {
        name: {tuple(row[column] for column in columns) for row in some} for name, some in grouped(rows, key).items()
    }


def _literal(value: Any) -> str:
    """A text or a number, as SQL has it."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _equal(name: str, value: Any) -> str:
    return f"{name} IS NULL" if value is None else f"{name} = {_literal(value)}"
