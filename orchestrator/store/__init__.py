"""The result store: an Arrow dataset that plain pyarrow, DuckDB, pandas and Polars read.

Rows go to a journal first, where they are safe, and from there into sorted Parquet parts. `results/README.md`
describes what readers see.

    origin, rows                    from what a runner said to rows: the one row builder
    validation                      the one judge of rows, whoever made them
    schema/                         columns, their units, keys and encodings
    storage/                        layout, journal, parts, generations, sealing, compaction, the writer
    ingest                          the one thread that writes, in groups
    query/                          a view of one moment, from Python and in SQL
    export, merge, push             rows for others, from others, and at a URL
    verification                    what is damaged, and what to do

What fails for a file, the disk or a damaged store is a `StoreError`, what a user named or asked wrongly a
`ConfigurationError`: one line each. Docstrings name errors where something else is to be known of them.
"""

from orchestrator.store.facade import Attempt, Store
from orchestrator.store.query.selection import Results, Selection, is_store, open_store
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
)
from orchestrator.store.schema.columns import Origin, Stage
from orchestrator.store.schema.tables import (
    Row,
    campaign_plan,
    campaign_row,
    campaign_totals,
    environment_row,
    system_row,
)
from orchestrator.store.storage.layout import is_url
from orchestrator.store.storage.seal import SealReport
from orchestrator.store.storage.writer import Writer
from orchestrator.store.validation import batch_of, fitting
