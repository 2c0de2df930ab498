"""What is known about environments and machines before anything is built."""

from collections.abc import Collection, Mapping, Sequence

from orchestrator.environments import BuiltImage, Catalogue, EnvironmentEntry, lock_sha256, recipe_sha256
from orchestrator.planning import NONE_USED, EnvironmentPin, Isolation
from orchestrator.planning.feasibility import ANY_SUITABLE, GpuFacts, Machine
from runners.system import Fingerprint, GpuPlace


def expand(environments: Sequence[str], catalogue: Catalogue) -> list[EnvironmentEntry]:
    """The entries that a sweep's environments may come down to; `any-suitable` may be each of the catalogue.

    Raises:
        ConfigurationError: an environment is not in the catalogue.
    """
    names = list(environments)
    if ANY_SUITABLE in names:
        names += catalogue.entries
    return [catalogue.entry(name) for name in dict.fromkeys(names) if name != ANY_SUITABLE]


def known_pin(
    entry: EnvironmentEntry, isolation: Isolation, reason: str, built: Mapping[str, BuiltImage]
) -> EnvironmentPin:
    """An environment as far as it is known without building: an image that is not built has no identity yet."""
    if entry.unresolved is not None:
        return EnvironmentPin(entry.name, isolation, reason, None)
    image = built.get(entry.name) if isolation is Isolation.DOCKER else None
    current = image if image is not None and image.recipe_sha256 == recipe_sha256(entry) else None
    return EnvironmentPin(
        entry.name,
        isolation,
        reason,
        lock_sha256(entry),
        image_id=current.image_id if current else None,
        image_digest=(current.repo_digest or current.image_id) if current else None,
        image_layers=current.layers if current else (),
        image_config_sha256=current.config_sha256 if current else None,
    )


def known_pins(
    environments: Sequence[str],
    entries: Sequence[EnvironmentEntry],
    isolation: Isolation,
    reason: str,
    built: Mapping[str, BuiltImage],
) -> dict[str, EnvironmentPin]:
    """The pins of all entries, and one for the skips of `any-suitable` if the sweep names it."""
    pins = {entry.name: known_pin(entry, isolation, reason, built) for entry in entries}
    if ANY_SUITABLE in environments:
        pins[ANY_SUITABLE] = EnvironmentPin(ANY_SUITABLE, isolation, reason, None)
    return pins


def machine_of(seen: Fingerprint, trial_memory_bytes: int, used: Collection[GpuPlace] | None = None) -> Machine:
    """What decides what a host can run.

    Args:
        seen: the host's fingerprint.
        trial_memory_bytes: the memory limit of its trials.
        used: the GPUs that trials use; by default all.
    """
    uuids = seen.private.gpu_uuids if seen.private is not None else ()
    wanted = None if used is None or len(uuids) != len(seen.gpus) else {gpu.uuid for gpu in used}
    gpus = tuple(
        GpuFacts(gpu.name, gpu.compute_capability, gpu.memory_bytes)
        for number, gpu in enumerate(seen.gpus)
        if wanted is None or uuids[number] in wanted
    )
    return Machine(
        driver_version=seen.gpu_driver_version,
        gpus=gpus,
        gpu_reason=NONE_USED if seen.gpus and not gpus else seen.gpu_reason,
        trial_memory_bytes=trial_memory_bytes,
        architecture=seen.kernel.architecture,
    )
