"""How a campaign that runs looks to a person: a table that fits 80 columns, and what is to be expected."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestrator.campaign.control import CampaignPhase, CampaignProgressState, HostPhase, HostProgress
from orchestrator.cli.progress import TRIALS_BEFORE_TRUST, duration_text

SILENT_S: Final = 30.0
"""A driver says something each second; so long without a word, it is worth a note."""

PREPARING: Final = "but one is being prepared, or one of another project runs on this machine"
"""Said where a sweep holds a lock and no campaign runs."""

_STYLES: Final[Mapping[HostPhase, str]] = {
    HostPhase.READY: "",
    HostPhase.RUNNING: "green",
    HostPhase.LOST: "bold red",
    HostPhase.DRAINED: "yellow",
    HostPhase.GIVEN_UP: "red",
    HostPhase.DONE: "dim",
}
_OUT: Final = (HostPhase.LOST, HostPhase.GIVEN_UP)
_WORKING: Final = (HostPhase.READY, HostPhase.RUNNING)


@dataclass(frozen=True)
class Seen:
    """What is known of the project's campaign at a moment."""

    is_alive: bool
    state: CampaignProgressState | None
    """Null if no driver of this project has said anything yet."""
    last: Mapping[str, Any] | None
    """The last campaign of the store, as `taxmeter results ls` has it; null if there is none, or while one runs."""
    now_ns: int
    is_locked: bool = False
    """Whether a sweep holds this machine or this project, though no campaign runs yet."""

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong and nothing is left behind."""
        if self.is_alive:
            return self.state is None or not any(host.phase in _OUT for host in self.state.hosts)
        return self.last is None or not self.last["left_to_do"]


def render(seen: Seen) -> RenderableType:
    """All that there is to say, to be printed."""
    if seen.is_alive:
        return Text("a campaign of this project is starting") if seen.state is None else _running(seen.state, seen)
    parts: list[RenderableType] = []
    if seen.state is not None and seen.state.phase is not CampaignPhase.ENDED:
        ago = duration_text((seen.now_ns - seen.state.beat_at_ns) / 1e9)
        parts.append(
            Text.from_markup(
                f"[bold red]the driver of {escape(seen.state.campaign_id)} died[/]; its last sign of life came {ago} "
                "ago. Every row that it acknowledged is in the store. It said last:"
            )
        )
        parts += [_table(seen.state, seen.now_ns), Text()]
    parts.append(Text("no campaign of this project runs" + _why(seen)))
    if seen.last is not None:
        parts.append(_last(seen.last))
    return Group(*parts)


def left_s(state: CampaignProgressState, now_ns: int) -> float | None:
    """Seconds until the last host that works is done, by the pace of each so far; null if nothing can be said."""
    elapsed_s = max(0.0, (now_ns - state.started_at_ns) / 1e9)
    working = [host for host in state.hosts if host.phase in _WORKING and host.left]
    if sum(host.already_done for host in state.hosts) != state.already_done:
        # It is not told which host did what before this run: all have one pace.
        done = state.done - state.already_done
        paces = [(sum(host.left for host in working), done)] if working else []
    else:
        paces = [(host.left, host.done - host.already_done) for host in working]
    guesses = [_guess_s(left, done, elapsed_s, state.estimate_s) for left, done in paces]
    known = [guess for guess in guesses if guess is not None]
    return max(known, default=None) if len(known) == len(guesses) else None


def _guess_s(left: int, done: int, elapsed_s: float, estimate_s: float | None) -> float | None:
    if done >= TRIALS_BEFORE_TRUST:
        return left * elapsed_s / done
    return None if estimate_s is None else max(0.0, estimate_s - elapsed_s)


def _running(state: CampaignProgressState, seen: Seen) -> RenderableType:
    for_s = duration_text((seen.now_ns - state.started_at_ns) / 1e9)
    head = f"[bold]{escape(state.campaign_id)}[/] is {state.phase.value} on {escape(state.place)}, for {for_s}"
    parts: list[RenderableType] = [Text.from_markup(head), Text(), _table(state, seen.now_ns), Text()]
    parts += [Text.from_markup(line) for line in _outlook(state, seen.now_ns)]
    silent_s = (seen.now_ns - state.beat_at_ns) / 1e9
    if silent_s > SILENT_S:
        parts.append(Text(f"its driver lives, but has said nothing for {duration_text(silent_s)}", "bold red"))
    return Group(*parts)


def _table(state: CampaignProgressState, now_ns: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("host", no_wrap=True)
    table.add_column("phase", no_wrap=True)
    for name in ("done", "left", "failed", "for"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what")
    for host in state.hosts:
        table.add_row(
            escape(host.name),
            Text(host.phase.value, _STYLES[host.phase]),
            str(host.done),
            str(host.left),
            _failed(host.failed),
            duration_text(max(0.0, (now_ns - host.since_ns) / 1e9)),
            escape(_what(host)),
        )
    if len(state.hosts) > 1:
        table.add_row("total", "", str(state.done), str(state.left), _failed(state.failed), "", "", style="bold")
    return table


def _what(host: HostProgress) -> str:
    if host.phase is HostPhase.RUNNING:
        return host.trial or "between trials"
    return "; ".join(text for text in (host.reason, host.trial) if text)


def _failed(count: int) -> Text:
    return Text(str(count), "red" if count else "dim")


def _outlook(state: CampaignProgressState, now_ns: int) -> list[str]:
    elapsed_s = (now_ns - state.started_at_ns) / 1e9
    fresh = state.done - state.already_done
    before = f" ({state.already_done} of them before this run)" if state.already_done else ""
    lines = [f"{state.done} of {state.done + state.left} trials are in the store{before}"]
    if fresh and elapsed_s > 0:
        lines[0] += f", {fresh / elapsed_s * 60:.3g} a minute"
    rest_s = left_s(state, now_ns)
    if rest_s is not None:
        until = datetime.fromtimestamp(now_ns / 1e9 + rest_s, UTC)
        lines.append(f"about {duration_text(rest_s)} left, until {until:%H:%M} UTC")
    out = [host for host in state.hosts if host.phase in _OUT and host.left]
    if out:
        names = ", ".join(escape(host.name) for host in out)
        lines.append(f"without {names}: {sum(host.left for host in out)} trials wait there")
    return lines


def _why(seen: Seen) -> str:
    return f"; {PREPARING}" if seen.is_locked else ""


def _last(row: Mapping[str, Any]) -> Text:
    name, left, planned = escape(row["campaign_id"]), row["left_to_do"], row["planned"]
    began = f"{row['started_at']:%Y-%m-%d %H:%M} UTC"
    if left:
        text = (
            f"the last one, [bold]{name}[/] of {began}, is not finished: {left} of {planned} trials are left; "
            "`taxmeter sweep resume` goes on with it"
        )
    else:
        failed = f", {row['failed']} of them failed" if row["failed"] else ""
        text = f"the last one, [bold]{name}[/] of {began}, is finished: {planned} trials{failed}"
    return Text.from_markup(text)
