"""Following a store: the page is made anew when the store has changed, and only then."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow.compute as pc

from orchestrator.analysis.conditions import Condition
from orchestrator.errors import ConfigurationError
from orchestrator.report.page.build import make_report
from orchestrator.report.page.render import render_page, render_waiting
from orchestrator.store import Results, Selection

State = tuple[object, ...]

_IDLE_S: Final = 60
"""Between two looks of a page that is served, where no campaign runs: another may start."""
_VERSION: Final = 16
"""Hexadecimal digits."""


@dataclass(frozen=True)
class Question:
    """What a page is about."""

    results: Results
    conditions: tuple[Condition, ...]
    baselines: tuple[str, ...] = ()
    campaign_id: str | None = None
    """The one campaign that it is about; it may have no trial yet."""
    without_flagged: bool = False
    """Whether trials that guards flagged are left out of all numbers."""


@dataclass(frozen=True)
class Made:
    """A page as it was made."""

    html: str
    is_running: bool
    """A campaign on it has not ended."""
    trials: int


@dataclass
class Follower:
    """Makes pages of one question; of a store that did not change, the same one."""

    question: Question
    refresh_s: int | None
    """How often the page loads itself anew while a campaign runs, or always with `is_served`; null for never."""
    is_served: bool = False
    """The page asks its server whether there is anything new, though no campaign runs: another may start."""
    _state: State | None = field(default=None, init=False)
    _made: Made | None = field(default=None, init=False)

    def page(self) -> tuple[Made, bool]:
        """The page as of now, and whether it is another than the last one.

        Raises:
            ConfigurationError: a value is unknown, or no trial meets the conditions.
        """
        state = store_state(self.question.results)
        if self._made is not None and state == self._state:
            return self._made, False
        self._made, self._state = self._make(_version(state)), state
        return self._made, True

    def version(self) -> str:
        """What a page that is made now is called: another name means that the store has changed."""
        return _version(store_state(self.question.results))

    def _make(self, version: str) -> Made:
        question, refresh_s = self.question, self.refresh_s
        if question.campaign_id is not None and not _has_trials(question):
            if refresh_s is None:
                raise ConfigurationError(
                    f"{question.campaign_id}: no trial has ended yet; --watch writes the page as soon as one has"
                )
            return Made(render_waiting(question.campaign_id, refresh_s), is_running=True, trials=0)
        report = make_report(question.results, question.conditions, question.baselines, question.without_flagged)
        page = report.page
        idle_s = max(refresh_s, _IDLE_S) if refresh_s is not None and self.is_served else None
        lasting = refresh_s if page.is_running else idle_s
        html = render_page(report, lasting, version if self.is_served else None)
        return Made(html, page.is_running, sum(page.statuses.values()))


def store_state(results: Results) -> State:
    """What changes whenever a row is added, a campaign begins or ends, or files are compacted."""
    view = results.view()
    campaigns = Selection(view, "campaigns", None, ("campaign_id", "finished_at")).arrow().to_pylist()
    files = tuple(sorted(map(str, view.snapshot.files["trials"])))
    return len(view.unsealed), files, tuple(sorted((row["campaign_id"], str(row["finished_at"])) for row in campaigns))


def follow(follower: Follower, write: Callable[[Made], None], wait: Callable[[], None]) -> None:
    """Writes the page whenever it changes, until no campaign on it runs any more.

    Raises:
        ConfigurationError: a value is unknown, no trial meets the conditions, or the place cannot be written.
    """
    while True:
        made, is_new = follower.page()
        if is_new:
            write(made)
        if not made.is_running:
            return
        wait()


def _version(state: State) -> str:
    return hashlib.sha256(repr(state).encode()).hexdigest()[:_VERSION]


def _has_trials(question: Question) -> bool:
    """Whether a page can show one; second halves of A/A pairs alone have nothing that they stand beside."""
    first = (pc.field("campaign_id") == question.campaign_id) & (pc.field("replicate") == 0)
    flags = question.results.trials(first, ["guard_flags"]).arrow()["guard_flags"].to_pylist()
    return any(not (question.without_flagged and flagged) for flagged in flags)
