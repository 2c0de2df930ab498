"""Where the time of a campaign goes."""

import time
from collections.abc import Callable, Mapping

from orchestrator.store import Stage, Store


class StageClock:
    """Adds up the seconds of each stage: every second from its making on belongs to one."""

    def __init__(
        self,
        stage: Stage = Stage.LOOKING,
        *spent: Mapping[Stage, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins now.

        Args:
            stage: the first.
            spent: seconds of before, to be added.
            clock: in seconds.
        """
        self._clock = clock
        self._seconds = {stage: sum(some.get(stage, 0.0) for some in spent) for stage in Stage}
        self._stage, self._since_s = stage, clock()

    def enter(self, stage: Stage) -> None:
        """From now on it is in this stage."""
        now_s = self._clock()
        self._seconds[self._stage] += now_s - self._since_s
        self._stage, self._since_s = stage, now_s

    def seconds(self) -> dict[Stage, float]:
        """Of each stage, until now."""
        self.enter(self._stage)
        return dict(self._seconds)


def spent_before(store: Store, campaign_id: str) -> dict[Stage, float]:
    """Seconds of the stages of a campaign by its row; nothing of one that has not ended yet."""
    rows = store.campaigns().select(["campaign_id", *(stage.value for stage in Stage)]).to_pylist()
    found = [row for row in rows if row["campaign_id"] == campaign_id]
    return {stage: row[stage.value] for row in found for stage in Stage if row[stage.value] is not None}
