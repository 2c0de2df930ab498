"""What a trial runs again: what is noted about it in its row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.store import RowContext


@dataclass(frozen=True)
class Counterpart:
    """Stored trials that are run again."""

    trial_key: str
    """Of then; the key of now is another one if what is measured is."""
    differs: str | None
    """In what; null where everything that is decided before the start is as it was."""


@dataclass(frozen=True)
class Reproduces:
    """What a campaign runs again."""

    campaign_id: str
    trials: Mapping[tuple[str, str], Counterpart]
    """By the host and the key of a trial that runs now."""


def with_counterpart(context: RowContext, trial_key: str, reproduces: Reproduces | None) -> RowContext:
    """The context of a row, with what the trial runs again, if it does."""
    if reproduces is None:
        return context
    counterpart = reproduces.trials[context.host or "", trial_key]
    return replace(
        context,
        reproduces=reproduces.campaign_id,
        reproduces_trial_key=counterpart.trial_key,
        reproduction_differs=counterpart.differs,
    )
