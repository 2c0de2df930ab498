"""A host as planning takes it: from its facts, the inventory, and what is known of the environments."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.config import Host, Inventory
from orchestrator.environments import BuiltImage, Catalogue, EnvironmentEntry, lock_sha256, recipe_sha256
from orchestrator.hosts.access import HostFacts
from orchestrator.planning import (
    ANY_SUITABLE,
    NONE_USED,
    EnvironmentPin,
    Isolation,
    Machine,
    PlanningHost,
    TooFewCoresError,
    choose_gpus,
    make_slots,
    used_of,
)
from runners.system import hw_id


@dataclass(frozen=True)
class KnownEnvironments:
    """What is known about the environments of a sweep before anything is built."""

    names: tuple[str, ...]
    """As the sweep has them; `any-suitable` may stand for each of the catalogue."""
    catalogue: Catalogue
    built: Mapping[str, BuiltImage]
    """The images that are recorded as built, by environment."""

    @property
    def entries(self) -> list[EnvironmentEntry]:
        """What the names may come down to."""
        names = [*self.names, *(self.catalogue.entries if ANY_SUITABLE in self.names else ())]
        return [self.catalogue.entry(name) for name in dict.fromkeys(names) if name != ANY_SUITABLE]

    @property
    def locked(self) -> tuple[str, ...]:
        """Names of the entries that have a lock."""
        return tuple(entry.name for entry in self.entries if entry.unresolved is None)

    def pins(self, isolation: Isolation, reason: str) -> dict[str, EnvironmentPin]:
        """All of them as a host has them; with `any-suitable` if it is named, for skips where nothing is suitable."""
        pins = {entry.name: self._pin(entry, isolation, reason) for entry in self.entries}
        if ANY_SUITABLE in self.names:
            pins[ANY_SUITABLE] = EnvironmentPin(ANY_SUITABLE, isolation, reason, None)
        return pins

    def _pin(self, entry: EnvironmentEntry, isolation: Isolation, reason: str) -> EnvironmentPin:
        """As far as it is known without building: an image that is not built has no identity yet."""
        if entry.unresolved is not None:
            return EnvironmentPin(entry.name, isolation, reason, None)
        pin = EnvironmentPin(entry.name, isolation, reason, lock_sha256(entry))
        image = self.built.get(entry.name) if isolation is Isolation.DOCKER else None
        return image_pin(pin, image) if image is not None and image.recipe_sha256 == recipe_sha256(entry) else pin


def image_pin(pin: EnvironmentPin, image: BuiltImage) -> EnvironmentPin:
    """The pin of an environment whose image is known."""
    return replace(
        pin,
        lock_sha256=image.lock_sha256,
        image_id=image.image_id,
        image_digest=image.repo_digest or image.image_id,
        image_layers=image.layers,
        image_config_sha256=image.config_sha256,
    )


def planning_host(
    facts: HostFacts,
    settings: Host,
    inventory: Inventory,
    environments: KnownEnvironments,
    unavailable: Mapping[str, str],
) -> PlanningHost:
    """A host as planning takes it."""
    reason = facts.isolation_reason
    if facts.isolation is Isolation.PROCESS and facts.niceness:
        reason += f"; at nice {facts.niceness}"
    if settings.reserved_cores >= len(facts.cores):
        count = len(facts.cores)
        problem = f"{settings.reserved_cores} cores are reserved, but the host has {count}; at most {count - 1} can be"
        raise inventory.error(problem, "hosts", facts.host, "reserved_cores")
    # the first cores are the agent's
    cores = facts.cores[settings.reserved_cores :]
    chosen = choose_gpus(settings.gpus, facts.topology.gpus)
    if chosen.problems:
        problem = f"{'; '.join(chosen.problems)}; correct it, or mend the host"
        raise inventory.error(problem, "hosts", facts.host, "gpus")
    try:
        slots = make_slots(cores, facts.topology, chosen.gpus, settings.exclusive)
    except TooFewCoresError as error:
        raise inventory.error(str(error), "hosts", facts.host, "exclusive") from None
    used = {gpu.uuid for gpu in used_of(chosen.gpus, settings.exclusive)}
    # a driver that does not tell which is which shows them all
    is_known = len(facts.gpus) == len(facts.topology.gpus)
    places = facts.topology.gpus if is_known else ()
    gpus = tuple(gpu for gpu, place in zip(facts.gpus, places, strict=False) if place.uuid in used)
    gpus = gpus if is_known else facts.gpus
    return PlanningHost(
        facts.host,
        settings.labels,
        cores,
        environments.pins(facts.isolation, reason),
        unavailable,
        machine=Machine(
            driver_version=facts.gpu_driver_version,
            gpus=gpus,
            gpu_reason=NONE_USED if facts.gpus and not gpus else facts.gpu_reason,
            trial_memory_bytes=facts.trial_memory_bytes,
            architecture=facts.architecture,
        ),
        demands={entry.name: entry.demands for entry in environments.entries},
        topology=replace(facts.topology, gpus=chosen.gpus),
        slots=slots,
        exclusive=settings.exclusive,
        hw_id=None if facts.fingerprint is None else hw_id(facts.fingerprint),
    )
