"""What campaigns leave in the directories of hosts, which here are directories of this machine, and who removes it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign import CampaignPlanned, CampaignProgress, ResumePolicy, TrialRecorded
from orchestrator.errors import InfrastructureError
from orchestrator.files import WorkFiles
from orchestrator.scheduling import SchedulingHost
from orchestrator.scheduling.host_calls import remove_directories
from tests import scripted_campaign
from tests.local_scheduler import LocalScheduler
from tests.scripted_campaign import Unanswered, ready, sweep

HOSTS = ("h1", "h2")


class Unwilling(LocalScheduler):
    """Hosts of which some remove nothing."""

    def __init__(self, *unwilling: str) -> None:
        super().__init__()
        self._unwilling = unwilling

    def stream(self, question: Any, host: str, asked: Any) -> Any:
        is_willing = question is not remove_directories or host not in self._unwilling
        return super().stream(question if is_willing else self._refuse, host, asked)

    def _refuse(self, asked: Any) -> Iterator[str]:
        raise InfrastructureError("its disk is stuck")
        yield


class Away(LocalScheduler):
    """A scheduler of whose hosts one is not there."""

    def start(self, hosts: Sequence[SchedulingHost]) -> Mapping[str, str]:
        super().start(hosts)
        return {"h2": "no node serves it"}

    def stream(self, question: Any, host: str, asked: Any) -> Any:
        return super().stream(question, host, asked) if host != "h2" else Unanswered()


class Lab(scripted_campaign.Lab):
    """A project whose hosts keep their files in directories beside it; each campaign puts something there."""

    def __init__(self, directory: Path, hosts: Path, results: str = "results") -> None:
        super().__init__(directory, directory / results)
        self._hosts = hosts

    def on(self, host: str) -> WorkFiles:
        return WorkFiles(self._hosts / host)

    def campaign(self, scheduler: LocalScheduler | None = None, *, is_stopped: bool = False) -> str:
        def observe(progress: CampaignProgress) -> None:
            if isinstance(progress, CampaignPlanned):
                for host in HOSTS:
                    (self.on(host).campaign(progress.campaign_id) / "code").mkdir(parents=True)
            if isinstance(progress, TrialRecorded) and is_stopped:
                raise KeyboardInterrupt

        hosts = [ready(name, self.on(name).root) for name in HOSTS]
        with pytest.raises(KeyboardInterrupt) if is_stopped else nullcontext():
            self.run(sweep(), scheduler or LocalScheduler(), hosts, observe, policy=ResumePolicy.NEVER)
        return str(self.store.campaigns().sort_by("started_at")["campaign_id"].to_pylist()[-1])

    def left(self, host: str) -> list[str]:
        """The campaigns of which a host has a directory."""
        return sorted(path.name for path in self.on(host).campaigns.glob("*"))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "project", tmp_path)


def test_a_complete_campaign_leaves_nothing_on_its_hosts(lab: Lab) -> None:
    campaign = lab.campaign()
    assert [lab.on(host).campaign(campaign).exists() for host in HOSTS] == [False, False]
    assert not lab.files.campaign(campaign).exists()


@pytest.mark.parametrize("scheduler", [Unwilling("h2"), Away()], ids=["unwilling", "away"])
def test_a_host_that_was_not_cleared_at_the_end_is_known_here(lab: Lab, scheduler: LocalScheduler) -> None:
    left = lab.campaign(scheduler)
    assert left in lab.left("h2")
    assert lab.files.campaign(left).exists(), "who else would know of it?"
