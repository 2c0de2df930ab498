"""The result store as the rest of the orchestrator sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import StoreError
from orchestrator.store.query.reading import current_view, steadily
from orchestrator.store.schema import TRIALS
from orchestrator.store.schema.columns import Origin
from orchestrator.store.storage.generations import KEEP_S
from orchestrator.store.storage.layout import Layout, reading_errors
from orchestrator.store.storage.writing import Writer
from runners.contract import Status


@dataclass(frozen=True)
class Attempt:
    """One attempt at a trial."""

    number: int
    status: Status


@dataclass(frozen=True)
class Store:
    """Trials, and the systems, environments and campaigns that they refer to."""

    layout: Layout

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens the store at `path`. Nothing is created before the first writer; a missing store is empty."""
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is no directory; give the directory of the result store")
        return cls(Layout(path))

    def writer(self, seal_after_rows: int | None = None, *, keep_s: float = KEEP_S) -> Writer:
        """A writer, after what killed writers left behind was sealed; the arguments are those of `Writer`."""
        return Writer(self.layout, seal_after_rows, keep_s=keep_s)

    def trials(
        self,
        columns: Sequence[str] | None = None,
        *,
        campaign_id: str | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as in pyarrow
    ) -> pa.Table:
        """Trials, each exactly once, with those that are not sealed yet.

        Args:
            columns: names of columns; all of them if null.
            campaign_id: only the trials of this campaign; all trials if null.
            filter: only the trials for which it is true, such as `pc.field("status") == "ok"`; all if null.
        """
        wanted = TRIALS.names if columns is None else columns
        unknown = sorted(set(wanted) - set(TRIALS.names))
        if unknown:
            raise StoreError(f"the store has no column {', '.join(unknown)}")
        condition = filter
        if campaign_id is not None:
            of_campaign = pc.field("campaign_id") == campaign_id
            condition = of_campaign if condition is None else of_campaign & condition

        def read() -> pa.Table:
            view = current_view(self.layout)
            with reading_errors(f"{view.snapshot.directory}/trials"):
                return view.table("trials", wanted, condition)

        return steadily(self.layout, read)

    def systems(self) -> pa.Table:
        """The systems that trials ran on."""
        return self._small("systems")

    def environments(self) -> pa.Table:
        """The environments that trials ran in."""
        return self._small("environments")

    def campaigns(self) -> pa.Table:
        """The campaigns, one row each."""
        return self._small("campaigns")

    def own_campaigns(self) -> pa.Table:
        """The campaigns that a sweep of this store measured: no other one is continued without being named."""
        campaigns = self.campaigns()
        return campaigns.filter(pc.equal(campaigns["origin"], Origin.MEASURED.value))

    def newest_campaign(self, plan_digest: str) -> str | None:
        """The campaign of this store that was started last with this plan; null if there is none."""
        campaigns = self.own_campaigns().sort_by([("started_at", "descending")])
        same = campaigns.filter(pc.equal(campaigns["plan_digest"], plan_digest))
        return str(same["campaign_id"][0].as_py()) if len(same) else None

    def attempts(self, campaign_id: str) -> dict[str, Attempt]:
        """The last attempt of each trial of a campaign, by trial id. To be kept, the next must have a higher number."""
        rows = self.trials(["trial_id", "attempt", "status"], campaign_id=campaign_id).sort_by("attempt")
        columns = [rows[name].to_pylist() for name in ("trial_id", "attempt", "status")]
        return {name: Attempt(number, Status(status)) for name, number, status in zip(*columns, strict=True)}

    def _small(self, table: str) -> pa.Table:
        return steadily(self.layout, lambda: self.layout.snapshot().table(table))
