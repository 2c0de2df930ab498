"""`taxmeter sweep status | stop | drain`: a campaign that runs, from another terminal."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter
from rich.console import Console
from rich.live import Live

from orchestrator.campaign import ProjectFiles
from orchestrator.campaign.control import (
    CampaignPhase,
    CampaignProgressState,
    ControlFiles,
    HostPhase,
    Request,
    RequestKind,
)
from orchestrator.cli.options import StorePlace, open_results
from orchestrator.cli.sweep_status import PREPARING, Seen, render
from orchestrator.errors import ConfigurationError, ExitCode, did_you_mean
from orchestrator.hosts import a_sweep_is_under_way
from orchestrator.store.query.listing import campaign_list

_NARROW = 80
"""Columns where there is no terminal."""
_WATCH_S = 1.0
_WATCH_PLAIN_S = 10.0
_POLL_S = 0.2
_PATIENCE_S = 15.0
"""So long a driver may take to answer a request before that is said; it looks for them each second or so."""
_NOTHING_RUNS = "no campaign of this project runs"

_STATE = TypeAdapter(CampaignProgressState | None)


@click.command("status")
@click.option("--watch", is_flag=True, help="Show it again and again, until the campaign ends.")
@click.option(
    "--results",
    "place",
    type=StorePlace(),
    default=None,
    help="The result store; by default that of the running campaign, or `results`.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
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
        _console().print(render(seen))
        for path in ControlFiles(files.control).refused():
            click.echo(f"not understood, so nobody acted on it: {path}")
    return ExitCode.OK if seen.is_well else ExitCode.TRIALS_FAILED


@click.command("stop")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Come back when it has ended.")
def stop_command(wait: bool) -> None:
    """Ends the campaign that runs in this project, as Ctrl-C where it runs does. What was measured stays."""
    files = ProjectFiles(Path.cwd())
    control = ControlFiles(files.control)
    if not control.is_alive():
        click.echo(_NOTHING_RUNS + _why(files))
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
    files = ProjectFiles(Path.cwd())
    control = ControlFiles(files.control)
    if not control.is_alive():
        click.echo(_NOTHING_RUNS + _why(files))
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


def _look(files: ProjectFiles, place: str | Path | None) -> Seen:
    control = ControlFiles(files.control)
    # In this order: a driver that ends says so before it is gone.
    is_alive, state = control.is_alive(), control.state()
    locked = not is_alive and a_sweep_is_under_way(files.state)
    last = None if is_alive else _last(place or (Path("results") if state is None else Path(state.results)))
    return Seen(is_alive, state, last, time.time_ns(), locked)


def _why(files: ProjectFiles) -> str:
    return f"; {PREPARING}" if a_sweep_is_under_way(files.state) else ""


def _last(place: str | Path) -> dict[str, Any] | None:
    if isinstance(place, Path) and not place.exists():
        return None
    rows: list[dict[str, Any]] = campaign_list(open_results(place).view()).slice(0, 1).to_pylist()
    return rows[0] if rows else None


def _document(seen: Seen) -> dict[str, Any]:
    last = None if seen.last is None else {**seen.last, "started_at": seen.last["started_at"].isoformat()}
    return {
        "is_alive": seen.is_alive,
        "is_well": seen.is_well,
        "campaign": _STATE.dump_python(seen.state, mode="json"),
        "last": last,
    }


def _watch(files: ProjectFiles, place: str | Path | None) -> Seen:
    console = _console()
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


def _console() -> Console:
    plain = Console()
    return plain if plain.is_terminal else Console(width=_NARROW, highlight=False)


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
