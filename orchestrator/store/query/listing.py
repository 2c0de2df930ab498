"""The campaigns of a store at a glance."""

from typing import Final

import pyarrow as pa

from orchestrator.store.query.querying import query_errors
from orchestrator.store.query.reading import View
from orchestrator.store.query.views import connect

# The last attempt counts. A trial that infrastructure failed runs again on a resume, so it is left to do as well; one
# that the plan skips was never planned to run.
_CAMPAIGNS: Final = """
    WITH last AS (
        SELECT campaign_id, trial_id, arg_max(status, attempt) AS status, max(finished_at) AS finished_at
        FROM trials GROUP BY ALL
    ), counted AS (
        SELECT campaign_id, max(finished_at) AS finished_at,
               count(*) FILTER (status = 'ok') AS ok,
               count(*) FILTER (status NOT IN ('ok', 'unsupported', 'skipped')) AS failed,
               count(*) FILTER (status = 'unsupported') AS unsupported,
               count(*) FILTER (status = 'skipped') AS skipped,
               count(*) FILTER (status NOT IN ('skipped', 'infrastructure_error')) AS done
        FROM last GROUP BY ALL
    ), places AS (
        SELECT campaign_id, list_sort(list(DISTINCT host)) AS hosts FROM trials WHERE host IS NOT NULL GROUP BY ALL
    )
    SELECT campaign_id, started_at, sweep, origin, origin_store, coalesce(hosts, []) AS hosts,
           planned_trials AS planned, coalesce(ok, 0) AS ok, coalesce(failed, 0) AS failed,
           coalesce(unsupported, 0) AS unsupported, coalesce(skipped, 0) AS skipped,
           greatest(0, planned_trials - coalesce(done, 0)) AS left_to_do,
           round(epoch(coalesce(campaigns.finished_at, counted.finished_at) - started_at), 3) AS duration_s
    FROM campaigns LEFT JOIN counted USING (campaign_id) LEFT JOIN places USING (campaign_id)
    ORDER BY started_at DESC, campaign_id
"""


def campaign_list(view: View) -> pa.Table:
    """The campaigns, the newest first.

    Returns:
        campaign_id, started_at, sweep, origin, origin_store, hosts; planned, ok, failed, unsupported, skipped and
        left_to_do in trials;
        duration_s from the start of the campaign to the end of its last trial, null if none ran.

    Raises:
        StoreError: a file cannot be read.
    """
    connection = connect(view)
    with query_errors(connection, ""):
        return connection.sql(_CAMPAIGNS).to_arrow_table()
