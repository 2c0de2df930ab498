"""The result store as the rest of the orchestrator sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.errors import StoreError
from orchestrator.store.query.selection import Results, equals
from orchestrator.store.schema.columns import Origin
from orchestrator.store.storage.generations import KEEP_S
from orchestrator.store.storage.layout import Layout
from orchestrator.store.storage.writer import Writer
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

    @property
    def results(self) -> Results:
        """What is in it, to choose from."""
        return Results(str(self.layout.root))

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
            filter: only the trials for which it is true, such as `pc.field("status") == "ok"`; all if null.
        """
        condition = filter
        if campaign_id is not None:
            of_campaign = equals("campaign_id", campaign_id)
            condition = of_campaign if condition is None else of_campaign & condition
        return self.results.trials(condition, columns).arrow()

    def systems(self) -> pa.Table:
        """The systems that trials ran on."""
        return self.results.systems().arrow()

    def environments(self) -> pa.Table:
        """The environments that trials ran in."""
        return self.results.environments().arrow()

    def campaigns(self) -> pa.Table:
        """The campaigns, one row each."""
        return self.results.campaigns().arrow()

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
        names, *said = (rows[name].to_pylist() for name in ("trial_id", "attempt", "status"))
        attempts = {pair: Attempt(pair[0], Status(pair[1])) for pair in set(zip(*said, strict=True))}
        return {name: attempts[pair] for name, pair in zip(names, zip(*said, strict=True), strict=True)}
