"""`taxmeter images`: the environments, and the images built from them."""

from pathlib import Path

import click

from orchestrator.cli.options import ComparingGroup
from orchestrator.environments import (
    BuildPolicy,
    Catalogue,
    compare_images,
    copy_environment,
    description,
    load_environment,
    prepare,
    pull_images,
    push_images,
    read_built_images,
    recipe_sha256,
    resolve_locks,
    save_environment,
    verify_images,
)
from orchestrator.errors import ExitCode
from orchestrator.files import ProjectFiles

_engine_option = click.option(
    "--engine", default=None, metavar="ADDRESS", help="Such as ssh://lab1; by default DOCKER_HOST or the local one."
)


@click.group(cls=ComparingGroup)
def images() -> None:
    """Environments: pinned software stacks.

    Exit codes: 0 ok, 1 what was compared differs, 2 usage, configuration or record, 3 an engine, a registry or a
    build failed.
    """


@images.command("list")
@click.option("-v", "--verbose", is_flag=True, help="What each pins, what of it was verified, and how.")
def list_images(verbose: bool) -> None:
    """Lists the environments of docker/images.yaml and what was built from them here."""
    files = ProjectFiles(Path.cwd())
    catalogue = Catalogue.load(files.catalogue)
    built = read_built_images(files.catalogue)
    for name, entry in catalogue.entries.items():
        image = built.get(name)
        if entry.unresolved is not None:
            state = f"no lock: {entry.unresolved}"
        elif image is None:
            state = "not built here"
        elif image.recipe_sha256 != recipe_sha256(entry):
            state = f"built here from another recipe: {image.image_id}"
        else:
            state = f"built here: {image.image_id}"
        cuda = "" if entry.cuda is None else f" (CUDA {entry.cuda}, driver {entry.minimum_driver} or newer)"
        click.echo(f"{name:16} Python {entry.python:6} {entry.purpose}{cuda}\n{'':16} {state}")
        if verbose:
            for line in description(entry):
                click.echo(f"{'':16} {line}")


@images.command()
@click.argument("names", nargs=-1)
@click.option("--check", is_flag=True, help="Write nothing, and fail if a lock would change.")
def lock(names: tuple[str, ...], check: bool) -> int:
    """Resolves the requirements of NAMES, or all, into their locks."""
    resolved = resolve_locks(names, _catalogue(), click.echo, check=check)
    for result in resolved:
        verb = "would change" if check else "written"
        click.echo(f"{result.name}: {verb if result.changes else 'unchanged'}")
        _indented(result.changes)
        if result.is_unresolved and not check:
            click.echo(f"{result.name}: remove `unresolved` from docker/images.yaml now")
    return ExitCode.TRIALS_FAILED if check and any(result.changes for result in resolved) else ExitCode.OK


@images.command()
@click.argument("names", nargs=-1)
@click.option("--accept", is_flag=True, help="Record what the engine has, although another image was recorded.")
@click.option("--from-scratch", is_flag=True, help="Build again, which makes another image, and record that one.")
def build(names: tuple[str, ...], accept: bool, from_scratch: bool) -> None:
    """Builds the images NAMES if the engine does not have them; without NAMES those for processors."""
    policy = BuildPolicy(accept=accept, from_scratch=from_scratch)
    for name, image in prepare(names, _catalogue(), click.echo, policy).items():
        click.echo(f"{name}: {image.image_id}")


@images.command()
@click.argument("names", nargs=-1)
@_engine_option
def verify(names: tuple[str, ...], engine: str | None) -> int:
    """Proves that the engine has the recorded images NAMES, or all: layers, settings, and what is seen inside."""
    found = verify_images(names, _catalogue(), engine, click.echo)
    recorded = read_built_images(_catalogue())
    for name, problems in found.items():
        image = recorded[name]
        if problems:
            click.echo(f"{name}: not the recorded image {image.image_id}")
            _indented(problems)
        else:
            click.echo(f"{name}: identical: {len(image.layers)} layers, settings, {len(image.versions)} versions")
    return ExitCode.TRIALS_FAILED if any(found.values()) else ExitCode.OK


@images.command()
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@_engine_option
def diff(left: str, right: str, engine: str | None) -> int:
    """Says in what two images differ. A and B are environments, references, ids, digests or saved files."""
    lines = compare_images(left, right, _catalogue(), engine, click.echo)
    if not lines:
        click.echo("identical")
        return ExitCode.OK
    click.echo(f"{left} (expected) and {right} (found) differ:")
    _indented(lines)
    return ExitCode.TRIALS_FAILED


@images.command()
@click.argument("names", nargs=-1)
@click.option("--registry", required=True, metavar="HOST[:PORT][/PREFIX]", help="Where to.")
def push(names: tuple[str, ...], registry: str) -> None:
    """Pushes the recorded images NAMES, or all, into a registry and records their digests."""
    for name, digest in push_images(names, _catalogue(), registry, click.echo).items():
        click.echo(f"{name}: {digest}")


@images.command()
@click.argument("names", nargs=-1)
@_engine_option
def pull(names: tuple[str, ...], engine: str | None) -> None:
    """Pulls the images NAMES, or all that were pushed, by their recorded digests, and verifies them."""
    for name, image in pull_images(names, _catalogue(), engine, click.echo).items():
        click.echo(f"{name}: {image.image_id}")


@images.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def save(name: str, file: Path) -> None:
    """Writes the recorded image of NAME to FILE, for machines that no registry reaches."""
    image = save_environment(name, file, _catalogue(), click.echo)
    click.echo(f"{name}: {image.image_id} is in {file}")


@images.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--accept", is_flag=True, help="Take it, although another image was recorded.")
@_engine_option
def load(file: Path, accept: bool, engine: str | None) -> None:
    """Brings the image in FILE onto an engine, and verifies it."""
    click.echo(f"loaded {load_environment(file, _catalogue(), engine, click.echo, accept=accept)}")


@images.command()
@click.argument("name")
@click.option(
    "--to", "target", required=True, metavar="ENGINE", help="Address of the other engine, such as ssh://lab1."
)
@click.option("--from", "source", default=None, metavar="ENGINE", help="By default DOCKER_HOST or the local one.")
def copy(name: str, target: str, source: str | None) -> None:
    """Streams the recorded image of NAME to another engine, once, and verifies it."""
    image = copy_environment(name, _catalogue(), target, source, click.echo)
    click.echo(f"{name}: {target} has {image.image_id}")


def _catalogue() -> Path:
    return ProjectFiles(Path.cwd()).catalogue


def _indented(lines: tuple[str, ...]) -> None:
    for line in lines:
        click.echo(f"  {line}")
