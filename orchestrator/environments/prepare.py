"""What the commands of `taxmeter images` do with the environments of a catalogue."""

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from orchestrator.environments.archive import read_archive
from orchestrator.environments.build import KEEP_RECORDED, BuildPolicy, ensure_image
from orchestrator.environments.catalogue import Catalogue, EnvironmentEntry, recipe_sha256
from orchestrator.environments.engine import TRANSFER_TIMEOUT_S, connect
from orchestrator.environments.expectation import recorded_differences
from orchestrator.environments.identity import identity_of
from orchestrator.environments.messages import engine_errors
from orchestrator.environments.record import RECORD, BuiltImage, image_lock, read_built_images, record_built_image
from orchestrator.environments.recording import LABEL_ENVIRONMENT, LABEL_RECIPE, describe, labels_of, reference_of
from orchestrator.environments.registry import check_registry, pull_image, push_image
from orchestrator.environments.transfer import copy_image, load_image, save_image
from orchestrator.errors import ConfigurationError, did_you_mean
from orchestrator.files import exclusive

Say = Callable[[str], None]


def prepare(
    names: Sequence[str], catalogue: Path, say: Say, policy: BuildPolicy = KEEP_RECORDED
) -> dict[str, BuiltImage]:
    """Makes sure that the engine has the images of these environments.

    Without names these are the environments of processors: any machine can use them, and they are built in minutes.

    Raises:
        ConfigurationError: the catalogue is malformed, an environment is not in it or has no lock yet, or the engine
            has another image than the recorded one.
        InfrastructureError: no engine answers, or an image cannot be built.
    """
    known = Catalogue.load(catalogue)
    entries = [known.entry(name) for name in names] or _for_processors(known, say)
    for entry in entries:
        if entry.unresolved is not None:
            raise ConfigurationError(f"{entry.name} cannot be built: {entry.unresolved}", file=known.path)
    with closing(connect()) as client:
        return {entry.name: ensure_image(entry, client, say, policy=policy) for entry in entries}


def push(names: Sequence[str], catalogue: Path, registry: str, say: Say) -> dict[str, str]:
    """Pushes the images of these environments, or all that are recorded, and records their digests.

    Raises:
        ConfigurationError: `registry` is none, or an image is not recorded or not in the catalogue.
        InfrastructureError: the registry cannot be reached or refuses.
    """
    place = check_registry(registry)
    known = Catalogue.load(catalogue)
    entries = [known.entry(name) for name in recorded_images(names, catalogue)]
    digests: dict[str, str] = {}
    with closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as client:
        for entry in entries:
            with image_lock(entry, say):
                [image] = recorded_images([entry.name], catalogue).values()
                digests[entry.name] = push_image(client, image, place, say)
                _record_digest(entry, image, digests[entry.name], say)
    return digests


def pull(names: Sequence[str], catalogue: Path, engine: str | None, say: Say) -> dict[str, BuiltImage]:
    """Pulls the images of these environments by their recorded digests, or all that were pushed.

    Raises:
        ConfigurationError: an image is not recorded, or was never pushed.
        InfrastructureError: the registry cannot be reached, or gives another image than the recorded one.
    """
    images = recorded_images(names, catalogue)
    if not names:
        images = {name: image for name, image in images.items() if image.repo_digest is not None} or images
    with closing(connect(engine, TRANSFER_TIMEOUT_S)) as client:
        for image in images.values():
            pull_image(client, image, say)
    return images


def save(name: str, file: Path, catalogue: Path, say: Say) -> BuiltImage:
    """Writes the recorded image of an environment as a file.

    Raises:
        ConfigurationError: it is not recorded.
        InfrastructureError: the engine does not have it, or the file cannot be written.
    """
    [image] = recorded_images([name], catalogue).values()
    with closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as client:
        save_image(client, image, file, say)
    return image


def load(file: Path, catalogue: Path, engine: str | None, say: Say, *, accept: bool = False) -> str:
    """Brings a saved image onto an engine, and records it if it is made from the catalogue's recipe.

    Returns its reference.

    Raises:
        ConfigurationError: the file is no saved image, or not the recorded one and `accept` is false.
        InfrastructureError: the engine refuses it.
    """
    archived = read_archive(file)
    labels = labels_of(archived)
    name, reference = labels[LABEL_ENVIRONMENT], reference_of(archived)
    entry = Catalogue.load(catalogue).entries.get(name)
    with image_lock(entry, say) if entry is not None else nullcontext():
        recorded = read_built_images(catalogue).get(name)
        if recorded is not None and recorded.recipe_sha256 != labels[LABEL_RECIPE]:
            recorded = None
        wrong = recorded_differences(recorded, identity_of(archived)) if recorded is not None and not accept else ()
        if recorded is not None and wrong:
            raise ConfigurationError(
                f"it holds another image of {name} than the recorded {recorded.image_id}: {'; '.join(wrong)}; "
                "--accept takes this one from now on",
                file=file,
            )
        with closing(connect(engine, TRANSFER_TIMEOUT_S)) as client:
            attributes = load_image(client, file, say)
            if entry is not None and _is_current(entry, labels[LABEL_RECIPE]):
                with engine_errors(f"{reference} cannot be looked into"):
                    record_built_image(entry, describe(reference, attributes, recorded, client, say))
            else:
                say(f"{reference} is of another recipe than {catalogue.name} has now, so it is not recorded")
    return reference


def copy(name: str, catalogue: Path, target: str, source: str | None, say: Say) -> BuiltImage:
    """Streams the recorded image of an environment to another engine, unless that has it.

    Raises:
        ConfigurationError: it is not recorded.
        InfrastructureError: an engine does not answer or fails, or the source does not have the image.
    """
    [image] = recorded_images([name], catalogue).values()
    with (
        closing(connect(source, TRANSFER_TIMEOUT_S)) as origin,
        closing(connect(target, TRANSFER_TIMEOUT_S)) as destination,
    ):
        # Two commands must not send the same gigabytes to one engine, whatever address each of them knows it by.
        with engine_errors(f"the engine at {target} failed"):
            known_as = str(destination.info().get("ID") or target)
        engine_id = "".join(one for one in known_as if one.isalnum() or one in "-_")
        lock = catalogue.absolute().parents[1] / ".taxmeter" / "locks" / f"copy-{name}-{engine_id}"
        with exclusive(lock, lambda: say(f"waiting for another command that copies {name} to {target}")):
            copy_image(image, origin, destination, say)
    return image


def recorded_images(names: Sequence[str], catalogue: Path) -> dict[str, BuiltImage]:
    """The recorded images of these environments, or all.

    Raises:
        ConfigurationError: one of them, or any at all, is not recorded.
    """
    images = read_built_images(catalogue)
    unknown = [name for name in names if name not in images]
    if unknown or not images:
        what = f"{unknown[0]} is not recorded" if unknown else "no image is recorded"
        hint = f"; {did_you_mean(unknown[0], images)}" if images else ""
        raise ConfigurationError(f"{what}: `taxmeter images build` does so{hint}", file=catalogue.with_name(RECORD))
    return {name: images[name] for name in names} if names else images


def _record_digest(entry: EnvironmentEntry, pushed: BuiltImage, digest: str, say: Say) -> None:
    # Minutes have passed, and the lock keeps commands out, but no editor.
    recorded = read_built_images(entry.directory / RECORD).get(entry.name)
    if recorded is None or recorded.layers != pushed.layers:
        say(f"{entry.name} is another image in {RECORD} meanwhile, so the digest {digest} is not recorded")
    else:
        record_built_image(entry, recorded.model_copy(update={"repo_digest": digest}))


def _for_processors(known: Catalogue, say: Say) -> list[EnvironmentEntry]:
    chosen = [entry for _, entry in sorted(known.entries.items()) if entry.cuda is None and entry.unresolved is None]
    left = sorted(known.entries.keys() - {entry.name for entry in chosen})
    if left:
        say(f"built only when they are named: {', '.join(left)}")
    return chosen


def _is_current(entry: EnvironmentEntry, recipe: str) -> bool:
    return entry.unresolved is None and recipe_sha256(entry) == recipe
