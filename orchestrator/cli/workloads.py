"""`taxmeter workloads`: what a sweep can name."""

import click

from orchestrator.cli.options import format_option, print_status
from orchestrator.errors import ConfigurationError, did_you_mean
from runners.contract.catalogue import WORKLOADS, WorkloadInfo


@click.command("workloads")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@format_option("table", "markdown")
def workloads_command(names: tuple[str, ...], form: str) -> None:
    """Lists what a sweep can name under `workloads`: family and default size.

    The options of those that are named are listed, too. A model that is not there needs a row or a
    file of yours: docs/adding-a-workload.md. In Markdown it is the table of docs/workloads.md.
    """
    for name in names:
        if name not in WORKLOADS:
            raise ConfigurationError(f"unknown workload {name}; {did_you_mean(name, WORKLOADS)}")
    chosen = {name: WORKLOADS[name] for name in names or WORKLOADS}
    if form == "markdown":
        from orchestrator.report import markdown  # a second of imports that the others do without

        families: dict[str, list[str]] = {}
        for name, info in chosen.items():
            families.setdefault(info.family, []).append(f"`{name}`")
        rows = [[f"`{family}`", ", ".join(members)] for family, members in families.items()]
        click.echo("\n".join([*markdown.head(["family", "workloads"]), *map(markdown.row, rows)]))
        return
    rows = [[name, info.family, _size(info), info.about] for name, info in chosen.items()]
    options = [
        f"{name}: {option} is {_values(info, option)}" for name, info in chosen.items() for option in info.options
    ]
    print_status(rows, options if names else [], f"{len(rows)} workload{'' if len(rows) == 1 else 's'}")


def _size(info: WorkloadInfo) -> str:
    if info.sequence_length is not None:
        return f"{info.sequence_length} tokens"
    return "–" if info.image_size is None else f"{info.image_size} pixels"


def _values(info: WorkloadInfo, option: str) -> str:
    return f"{info.options[option].expected()}; by default {info.options[option].default}"
