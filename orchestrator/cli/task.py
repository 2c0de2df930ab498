"""`taxmeter task`: a sweep as a directory, for machines without Ray or Docker."""

import re
from pathlib import Path
from typing import Final

import click

from orchestrator.campaign.exchange import cores_of, exported_host, write_export
from orchestrator.campaign.resume import new_campaign_id
from orchestrator.campaign.run import refuse_empty
from orchestrator.cli.sweep import git_commit, known_environments, print_plan, sweep_argument
from orchestrator.config import Sweep, load_sweep
from orchestrator.environments import Catalogue
from orchestrator.errors import ConfigurationError, did_you_mean, some_names
from orchestrator.files import ProjectFiles
from orchestrator.planning import ANY_SUITABLE, plan

_UUID: Final = re.compile(r"(GPU|MIG)-[0-9a-fA-F-]{36}")


@click.group()
def task() -> None:
    """Tasks for machines that this one cannot reach."""


@task.command()
@sweep_argument
@click.option("--output", "directory", required=True, type=click.Path(path_type=Path), help="A new directory.")
@click.option("--host", default="elsewhere", show_default=True, help="Name of the machine in the results.")
@click.option(
    "--cores", default=None, metavar="N|LIST", help="Its cores: how many, such as 16, or which, such as 0-15."
)
@click.option("--gpu", default=None, metavar="UUID", help="Its GPU, as `nvidia-smi -L` names it; the first by default.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label of it, for the sweep's targets.")
@click.option(
    "--environment",
    "environments",
    multiple=True,
    help="One of the sweep's environments; all without it. Needed for any-suitable.",
)
def export(
    sweep_file: Path,
    directory: Path,
    host: str,
    cores: str | None,
    gpu: str | None,
    labels: tuple[str, ...],
    environments: tuple[str, ...],
) -> None:
    """Writes SWEEP as a directory that any machine with the right Python can run."""
    wanted = load_sweep(sweep_file)
    if gpu is not None and not _UUID.fullmatch(gpu):
        raise ConfigurationError(f"--gpu {gpu}: expected a UUID such as GPU-34bf77d1-c686-6821-79a8-32d326c5039c")
    files = ProjectFiles(Path.cwd())
    known_environments(wanted, files)
    catalogue = Catalogue.load(files.catalogue)
    chosen = wanted.model_copy(update={"environments": _chosen(wanted, environments, catalogue)})
    entries = {name: catalogue.entry(name) for name in chosen.environments}
    known_cores = cores_of(wanted, cores)
    machine = exported_host(host, _labels(labels), known_cores, list(entries.values()))
    campaign_id = new_campaign_id(wanted.name)
    planned = plan(chosen, [machine], campaign_id)
    refuse_empty(planned)
    print_plan(planned)
    if not planned.tasks:
        raise wanted.error("every trial is skipped, so that there is nothing to run")
    write_export(directory, planned, machine, known_cores, entries, wanted, campaign_id, git_commit(), gpu)
    click.echo(f"campaign {campaign_id} is in {directory}; its README.txt says how to run it there")
    click.echo(f"afterwards: taxmeter results import {directory}")


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise ConfigurationError(f"--label {text}: expected NAME=VALUE")
        labels[name] = value
    return labels


def _chosen(wanted: Sweep, names: tuple[str, ...], catalogue: Catalogue) -> tuple[str, ...]:
    any_suitable = ANY_SUITABLE in wanted.environments
    if any_suitable and not names:
        raise wanted.error(
            "any-suitable is chosen by what a machine has, and nobody can look at it here; "
            f"add --environment NAME with one of {some_names(sorted(catalogue.entries))}",
            "environments",
        )
    known = [*wanted.environments, *(catalogue.entries if any_suitable else ())]
    for name in names:
        if name not in known or name == ANY_SUITABLE:
            raise ConfigurationError(f"--environment {name}: the sweep does not name it; {did_you_mean(name, known)}")
    return tuple(dict.fromkeys(name for name in known if name != ANY_SUITABLE and (not names or name in names)))
