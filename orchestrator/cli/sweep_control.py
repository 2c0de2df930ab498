"""`taxmeter sweep status | stop | drain`: a campaign that runs, from another terminal."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestrator.boundary import adapter_of
from orchestrator.campaign.control import (
    CampaignPhase,
    CampaignProgressState,
    ControlFiles,
    HostPhase,
    HostProgress,
    Request,
    RequestKind,
)
from orchestrator.cli.options import duration_text, format_option
from orchestrator.cli.stores import DEFAULT_RESULTS, StorePlace, open_results
from orchestrator.cli.tables import wide_console
from orchestrator.errors import ConfigurationError, ExitCode, did_you_mean
from orchestrator.files import ProjectFiles
from orchestrator.hosts import a_sweep_is_under_way
from orchestrator.store.query.view import campaign_list

_NARROW = 80
"""Columns where there is no terminal."""
_WATCH_S = 1.0
_WATCH_PLAIN_S = 10.0
_POLL_S = 0.2
_PATIENCE_S = 15.0
"""So long a driver may take to answer a request before that is said; it looks for them each second or so."""
_NOTHING_RUNS = "no campaign of this project runs"

SILENT_S: Final = 30.0
"""A driver says something each second; so long without a word, it is worth a note."""

_PREPARING: Final = "; but one is being prepared, or one of another project runs on this machine"
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


@dataclass(frozen=True)
class CampaignStatus:
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
    def has_died(self) -> bool:
        """Whether the driver that spoke last ended without saying so."""
        return not self.is_alive and self.state is not None and self.state.phase is not CampaignPhase.ENDED

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong and nothing is left behind."""
        if self.is_alive:
            return self.state is None or not any(host.phase in _OUT for host in self.state.hosts)
        return not self.has_died and (self.last is None or not self.last["left_to_do"])


@click.command("status")
@click.option("--watch", is_flag=True, help="Show it again and again, until the campaign ends.")
@click.option(
    "--results",
    "place",
    type=StorePlace(),
    default=None,
    help="The result store; by default that of the running campaign, or `results`.",
)
@format_option("table", "json")
def status_command(watch: bool, place: str | Path | None, form: str) -> ExitCode:
    """Shows the campaign that runs in this project, host by host; or the last one, if none runs.

    Exit code 1 says that a host is lost, that the driver died, or that something is left to do and nothing runs.
    """
    files = ProjectFiles(Path.cwd())
    seen = _look(files, place)
    if form == "json":
        click.echo(json.dumps(_document(seen)))
    elif watch:
        seen = _watch(files, place)
    else:
        wide_console(_NARROW).print(render(seen))
        for path in ControlFiles(files.control).refused():
            click.echo(f"not understood, so nobody acted on it: {path}")
    return ExitCode.OK if seen.is_well else ExitCode.TRIALS_FAILED


@click.command("stop")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Come back when it has ended.")
def stop_command(wait: bool) -> None:
    """Ends the campaign that runs in this project, as Ctrl-C where it runs does. What was measured stays."""
    if (control := _of_a_driver()) is None:
        return
    control.request(Request(RequestKind.STOP))
    click.echo(f"asked {_name(control.state())} to stop")
    if wait:
        _wait_until(lambda: not control.is_alive(), "it has not ended yet; `taxmeter sweep status` shows what runs")
        click.echo(_ended(control.state()))


@click.command("drain")
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
def drain_command(hosts: tuple[str, ...]) -> None:
    """Has hosts take no new tasks, all of them if none is named. What runs there ends by itself."""
    if (control := _of_a_driver()) is None:
        return
    state = control.state()
    known = [] if state is None else [host.name for host in state.hosts]
    for name in hosts:
        if known and name not in known:
            raise ConfigurationError(f"{name} takes no part in {_name(state)}; {did_you_mean(name, known)}")
    control.request(Request(RequestKind.DRAIN, hosts))
    click.echo(f"asked {_name(state)} to drain {', '.join(hosts) or 'all hosts'}")
    _wait_until(
        lambda: not control.is_alive() or _is_drained(control.state(), hosts),
        "its driver has not answered yet; `taxmeter sweep status` shows when it has",
        gives_up=True,
    )
    for line in _drained(control.state(), hosts):
        click.echo(line)


def _look(files: ProjectFiles, place: str | Path | None) -> CampaignStatus:
    control = ControlFiles(files.control)
    # In this order: a driver that ends says so before it is gone.
    is_alive, state = control.is_alive(), control.state()
    locked = not is_alive and a_sweep_is_under_way(files.state)
    last = None if is_alive else _last(place or (DEFAULT_RESULTS if state is None else Path(state.results)))
    return CampaignStatus(is_alive, state, last, time.time_ns(), locked)


def _of_a_driver() -> ControlFiles | None:
    """What the driver of this project is asked by; null, and told, if none runs."""
    files = ProjectFiles(Path.cwd())
    control = ControlFiles(files.control)
    if control.is_alive():
        return control
    click.echo(_NOTHING_RUNS + (_PREPARING if a_sweep_is_under_way(files.state) else ""))
    return None


def _last(place: str | Path) -> dict[str, Any] | None:
    if isinstance(place, Path) and not place.exists():
        return None
    rows: list[dict[str, Any]] = campaign_list(open_results(place).view()).slice(0, 1).to_pylist()
    return rows[0] if rows else None


def _document(seen: CampaignStatus) -> dict[str, Any]:
    last = None if seen.last is None else {**seen.last, "started_at": seen.last["started_at"].isoformat()}
    state = None if seen.state is None else adapter_of(CampaignProgressState).dump_python(seen.state, mode="json")
    return {
        "is_alive": seen.is_alive,
        "is_well": seen.is_well,
        "campaign": state,
        "last": last,
    }


def _watch(files: ProjectFiles, place: str | Path | None) -> CampaignStatus:
    console = wide_console(_NARROW)
    seen = _look(files, place)
    if not console.is_terminal:
        console.print(render(seen))
        while seen.is_alive:
            time.sleep(_WATCH_PLAIN_S)
            seen = _look(files, place)
            console.print(render(seen))
        return seen
    with Live(render(seen), console=console, auto_refresh=False) as live:
        while seen.is_alive:
            time.sleep(_WATCH_S)
            seen = _look(files, place)
            live.update(render(seen), refresh=True)
    return seen


def _wait_until(happened: Callable[[], bool], impatience: str, *, gives_up: bool = False) -> None:
    """Waits; says so once where it takes long, and then goes on waiting unless it `gives_up`."""
    patience = time.monotonic() + _PATIENCE_S
    told = False
    while not happened():
        if not told and time.monotonic() > patience:
            click.echo(impatience)
            told = True
            if gives_up:
                return
        time.sleep(_POLL_S)


def _is_drained(state: CampaignProgressState | None, hosts: tuple[str, ...]) -> bool:
    if state is None:
        return False
    if state.phase is not CampaignPhase.RUNNING:
        return True
    over = (HostPhase.DRAINED, HostPhase.DONE, HostPhase.GIVEN_UP)
    meant = [host for host in state.hosts if host.name in hosts]
    return bool(meant) and all(host.phase in over for host in meant)


def _drained(state: CampaignProgressState | None, hosts: tuple[str, ...]) -> list[str]:
    if state is None or not _is_drained(state, hosts):
        return []
    meant = [host for host in state.hosts if not hosts or host.name in hosts]
    busy = [f"{host.name} ends {host.trial}" for host in meant if host.trial]
    left = sum(host.left for host in meant)
    return [*busy, f"{left} trials are left there; `taxmeter sweep resume` goes on with them"]


def _name(state: CampaignProgressState | None) -> str:
    return "the campaign that is starting" if state is None else state.campaign_id


def _ended(state: CampaignProgressState | None) -> str:
    if state is None:
        return "it has ended"
    if state.phase is not CampaignPhase.ENDED:
        return f"{state.campaign_id} has ended without a last word; `taxmeter sweep status` tells what is left"
    of = state.done + state.left
    again = "; `taxmeter sweep resume` goes on with it" if state.left else ""
    return f"{state.campaign_id} has ended: {state.done} of {of} trials are in the store{again}"


def render(seen: CampaignStatus) -> RenderableType:
    """All that there is to say, to be printed."""
    if seen.is_alive:
        return Text("a campaign of this project is starting") if seen.state is None else _running(seen.state, seen)
    parts: list[RenderableType] = []
    if seen.state is not None and seen.has_died:
        ago = duration_text((seen.now_ns - seen.state.beat_at_ns) / 1e9)
        parts.append(
            Text.from_markup(
                f"[bold red]the driver of {escape(seen.state.campaign_id)} died[/]; its last sign of life came {ago} "
                "ago. Every row that it acknowledged is in the store. It said last:"
            )
        )
        parts += [_table(seen.state, seen.now_ns), Text()]
    parts.append(Text(_NOTHING_RUNS + (_PREPARING if seen.is_locked else "")))
    if seen.last is not None:
        parts.append(_last_text(seen.last))
    return Group(*parts)


def _running(state: CampaignProgressState, seen: CampaignStatus) -> RenderableType:
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
    rest_s = state.left_s(now_ns)
    if rest_s is not None:
        until = datetime.fromtimestamp(now_ns / 1e9 + rest_s, UTC)
        lines.append(f"about {duration_text(rest_s)} left, until {until:%H:%M} UTC")
    out = [host for host in state.hosts if host.phase in _OUT and host.left]
    if out:
        names = ", ".join(escape(host.name) for host in out)
        lines.append(f"without {names}: {sum(host.left for host in out)} trials wait there")
    return lines


def _last_text(row: Mapping[str, Any]) -> Text:
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
