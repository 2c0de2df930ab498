"""The live line of a running campaign, or a plain line now and then where there is no terminal."""

import time
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from orchestrator.campaign import CampaignPlanned, CampaignProgress, Notice, TrialBegun, TrialRecorded
from orchestrator.campaign.control import left_s
from orchestrator.campaign.progress import trial_text
from orchestrator.cli.options import duration_text
from runners.contract import Status, Trial

PLAIN_INTERVAL_S = 10.0


class ProgressLine:
    """Shows trial, host, done of total and time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Progress(
            SpinnerColumn(),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            # The machine that draws it is the one that is measured.
            refresh_per_second=1,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._total = 0
        self._done = 0
        self._estimate_s = 0.0
        self._has_budget = False
        self._began_at = 0.0
        self._printed_at = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def observe(self, progress: CampaignProgress) -> None:
        """Takes what the campaign tells."""
        if isinstance(progress, CampaignPlanned):
            self._planned(progress)
        elif isinstance(progress, TrialBegun):
            self._show(progress.host, progress.trial)
        elif isinstance(progress, TrialRecorded):
            self._recorded(progress)
        elif isinstance(progress, Notice):
            self._console.print(f"[yellow]note[/] {escape(progress.text)}", highlight=False)

    def _planned(self, progress: CampaignPlanned) -> None:
        self._total = progress.plan.trials
        self._estimate_s = progress.plan.estimate_s
        self._has_budget = any(planned.task.allocation is not None for planned in progress.plan.tasks)
        self._began_at = time.monotonic()
        already = f", {progress.already_done} are in the store already" if progress.already_done else ""
        self._console.print(
            f"campaign {progress.campaign_id}: {'at least ' if self._has_budget else ''}{self._total} trials to run"
            f"{already}, "
            f"about {duration_text(self._estimate_s)}",
            highlight=False,
        )
        for reason in progress.plan.unmatched:
            self._console.print(f"[yellow]not measured[/] {escape(reason)}", highlight=False)
        if self._total or self._has_budget:
            self._task = self._live.add_task("starting", total=self._total, left="")

    def _recorded(self, progress: TrialRecorded) -> None:
        status = progress.record.status
        if status is not Status.OK:
            self._console.print(
                f"[red]{status.value}[/] {trial_text(progress.trial)} on {progress.host}: "
                f"{escape(progress.record.reason or 'no reason given')}",
                highlight=False,
            )
        self._done += progress.final
        self._show(progress.host, progress.trial)

    def _show(self, host: str, trial: Trial) -> None:
        if self._task is not None:
            description = f"{trial_text(trial)} on {host}"
            # How many there will be, only the budget's end will tell
            self._total = max(self._total, self._done)
            self._live.update(
                self._task, total=self._total, completed=self._done, description=description, left=self._left_text()
            )
        now = time.monotonic()
        is_last = self._done == self._total and not self._has_budget
        if not self._console.is_terminal and (now - self._printed_at > PLAIN_INTERVAL_S or is_last):
            self._printed_at = now
            line = f"{self._done}/{self._total} {self._left_text()}, {trial_text(trial)} on {host}"
            self._console.print(line, highlight=False)

    def _left_text(self) -> str:
        elapsed_s = time.monotonic() - self._began_at
        # A budget is spent whole, however many trials that makes
        left, done = (1, 0) if self._has_budget else (self._total - self._done, self._done)
        guess_s = left_s(left, done, elapsed_s, self._estimate_s)
        return "longer than estimated" if left and not guess_s else f"{duration_text(guess_s or 0.0)} left"
