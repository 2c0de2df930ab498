"""Where the time of a campaign goes."""

from orchestrator.campaign.progress import StageClock
from orchestrator.store import Stage


def test_every_second_belongs_to_one_stage_and_those_of_before_are_added() -> None:
    moments = iter([100.0, 103.0, 110.0, 112.0, 112.5])
    clock = StageClock(Stage.SETUP, {Stage.IMAGES: 5.0}, {Stage.RUNNING: 1.0}, clock=lambda: next(moments))
    clock.enter(Stage.RUNNING)
    clock.enter(Stage.WAITING)
    clock.enter(Stage.RUNNING)
    told = {stage: seconds for stage, seconds in clock.seconds().items() if seconds}
    assert told == {Stage.IMAGES: 5.0, Stage.SETUP: 3.0, Stage.RUNNING: 8.5, Stage.WAITING: 2.0}
