"""The result store: an Arrow dataset that plain pyarrow, DuckDB, pandas and Polars read.

Rows go to a journal first, where they are safe, and from there into sorted Parquet parts. `results/README.md`
describes what readers see.
"""

from orchestrator.store.facade import Attempt, Store
from orchestrator.store.rows import Row, RowContext, campaign_row, environment_row, system_row, trial_row
from orchestrator.store.schema import CAMPAIGNS, ENVIRONMENTS, SCHEMA_VERSION, SYSTEMS, TRIALS
from orchestrator.store.sealing import SealReport
from orchestrator.store.writing import Writer

__all__ = [
    "CAMPAIGNS",
    "ENVIRONMENTS",
    "SCHEMA_VERSION",
    "SYSTEMS",
    "TRIALS",
    "Attempt",
    "Row",
    "RowContext",
    "SealReport",
    "Store",
    "Writer",
    "campaign_row",
    "environment_row",
    "system_row",
    "trial_row",
]
