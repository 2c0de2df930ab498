"""The result store: an Arrow dataset that plain pyarrow, DuckDB, pandas and Polars read.

Rows go to a journal first, where they are safe, and from there into sorted Parquet parts. `results/README.md`
describes what readers see.
"""

from orchestrator.store.building import (
    Counterpart,
    Reproduces,
    RowBuilder,
    Rows,
    StoredOrigin,
    TaskOrigin,
    environment_id,
    origin_document,
    read_origin,
)
from orchestrator.store.facade import Attempt, Store
from orchestrator.store.ingest import Answer, Ingest, Outcome, RowKey
from orchestrator.store.objects.location import is_url
from orchestrator.store.query.selection import Results, Selection, is_store, open_store
from orchestrator.store.rows import Row, RowContext, trial_row
from orchestrator.store.schema import (
    CAMPAIGNS,
    CONFIGURATION,
    ENVIRONMENTS,
    EXECUTION,
    PLACE,
    RUN,
    SCHEMA_VERSION,
    SYSTEMS,
    TRIALS,
    WORK,
    Origin,
)
from orchestrator.store.schema.tables import (
    campaign_plan,
    campaign_row,
    campaign_totals,
    environment_row,
    system_row,
)
from orchestrator.store.storage.sealing import SealReport
from orchestrator.store.storage.writing import Writer
from orchestrator.store.validation import batch_of, fitting

__all__ = [
    "CAMPAIGNS",
    "CONFIGURATION",
    "ENVIRONMENTS",
    "EXECUTION",
    "PLACE",
    "RUN",
    "SCHEMA_VERSION",
    "SYSTEMS",
    "TRIALS",
    "WORK",
    "Answer",
    "Attempt",
    "Counterpart",
    "Ingest",
    "Origin",
    "Outcome",
    "Reproduces",
    "Results",
    "Row",
    "RowBuilder",
    "RowContext",
    "RowKey",
    "Rows",
    "SealReport",
    "Selection",
    "Store",
    "StoredOrigin",
    "TaskOrigin",
    "Writer",
    "batch_of",
    "campaign_plan",
    "campaign_row",
    "campaign_totals",
    "environment_id",
    "environment_row",
    "fitting",
    "is_store",
    "is_url",
    "open_store",
    "origin_document",
    "read_origin",
    "system_row",
    "trial_row",
]
