"""`taxmeter images`: the environments, and the images built from them."""

from pathlib import Path

import click

from orchestrator.campaign import ProjectFiles
from orchestrator.images import Catalogue, prepare, read_built_images, recipe_sha256


@click.group()
def images() -> None:
    """Environments: pinned software stacks."""


@images.command("list")
def list_images() -> None:
    """Lists the environments of docker/images.yaml and what was built from them here."""
    files = ProjectFiles(Path.cwd())
    catalogue = Catalogue.load(files.catalogue)
    built = read_built_images(files.catalogue)
    for name, entry in catalogue.entries.items():
        image = built.get(name)
        if image is None:
            state = "not built here"
        elif image.recipe_sha256 != recipe_sha256(entry):
            state = f"built here from another recipe: {image.image_id}"
        else:
            state = f"built here: {image.image_id}"
        click.echo(f"{name:16} Python {entry.python:6} {entry.purpose}\n{'':16} {state}")


@images.command()
@click.argument("names", nargs=-1)
def build(names: tuple[str, ...]) -> None:
    """Builds the images NAMES, or all, if the engine does not have them."""
    files = ProjectFiles(Path.cwd())
    for name, image in prepare(names, files.catalogue, click.echo).items():
        click.echo(f"{name}: {image.image_id}")
