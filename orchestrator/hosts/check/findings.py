"""Turns what was seen of a host into findings: pure, so that each line can be tested without a host."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.config import Expectation, Host
from orchestrator.errors import some_of
from orchestrator.hosts.check.clock import Skew
from orchestrator.hosts.check.engine import OLDEST_ENGINE, OLDEST_PODMAN, EngineFacts, Requirements, WantedImage
from orchestrator.hosts.check.preflight import Preflight, filesystem_problem
from orchestrator.planning import (
    GIB,
    NONE_USED,
    GpuFacts,
    Machine,
    TooFewCoresError,
    choose_gpus,
    environment_problem,
    make_slots,
    newest_suitable,
    used_of,
)

BUSY_PER_CORE = 0.25
"""A load per core from which a host is called busy: a neighbour on every fourth core."""
SKEW_S = 1.0
"""From here on the times of two hosts' rows are in the wrong order."""
LITTLE_BYTES = 10 * GIB
"""For an engine: an environment for GPUs takes most of it."""
NO_SPACE_BYTES = GIB // 10
CHECK_TIMEOUT_S = 60.0
"""For all of a check of one host."""


class Check(Enum):
    """What is looked at, in the order of the table."""

    SSH = "ssh"
    ENGINE = "engine"
    IMAGES = "images"
    GPU = "gpu"
    DRIVER = "driver"
    DISK = "disk"
    GOVERNOR = "governor"
    GPU_USERS = "gpu users"
    LOAD = "load"
    CLOCK = "clock"
    EXPECT = "expect"
    AGENT = "agent"
    """Of the cluster that is up, if one is."""


class Level(Enum):
    """What a finding means."""

    OK = "ok"
    NONE = "none"
    """There was nothing to look at, or no way to."""
    WARNING = "warning"
    """Trials run, but something may disturb them or is not as it could be."""
    FAILURE = "failure"
    """The host cannot be used until it is mended."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check on one host."""

    level: Level
    shown: str
    """A few characters for a table."""
    problem: str | None = None
    """One line with what to do about it; null if nothing is wrong."""


def fine(shown: str) -> Finding:
    """Nothing is wrong."""
    return Finding(Level.OK, shown)


def nothing(shown: str) -> Finding:
    """There was nothing to look at, or no way to."""
    return Finding(Level.NONE, shown)


def warning(shown: str, problem: str) -> Finding:
    """Trials run, but something may disturb them."""
    return Finding(Level.WARNING, shown, problem)


def failure(shown: str, problem: str) -> Finding:
    """The host cannot be used until it is mended."""
    return Finding(Level.FAILURE, shown, problem)


_NOTHING = nothing("-")


@dataclass(frozen=True)
class HostReport:
    """All findings of one host."""

    host: str
    is_active: bool
    """Whether it takes new trials."""
    findings: Mapping[Check, Finding]
    preflight: Preflight | None = None
    """Null if the host was not reached."""
    engine: EngineFacts | None = None
    skew: Skew | None = None

    @property
    def is_usable(self) -> bool:
        """Whether trials can run there, whatever its state."""
        return all(finding.level is not Level.FAILURE for finding in self.findings.values())


def judge(
    host: Host,
    preflight: Preflight,
    engine: EngineFacts | None,
    skew: Skew | None,
    wanted: Requirements,
    work: str,
    own_directory: str | None,
) -> dict[Check, Finding]:
    """What follows from what was read, for all checks but those of SSH and of the engine itself.

    Args:
        engine: what its engine said; null if none answered.
        skew: of its clock; null if it was not measured.
        own_directory: the same, if it must be the host's own; null if it may be on a network file system.
    """
    machine = machine_of(preflight, host)
    fitting = {name: image for name, image in wanted.images.items() if _image_problem(image, machine) is None}
    missing = {} if engine is None else {name: image for name, image in fitting.items() if name not in engine.images}
    return {
        Check.IMAGES: _NOTHING if engine is None else _images(fitting, missing, wanted),
        Check.GPU: _gpus(host, preflight, engine),
        Check.DRIVER: _driver(preflight, machine, wanted),
        Check.DISK: _disk(preflight, engine, missing, work, own_directory),
        Check.GOVERNOR: _governor(preflight.governors),
        Check.GPU_USERS: _gpu_users(preflight),
        Check.LOAD: _load(preflight),
        Check.CLOCK: _clock(skew),
        Check.EXPECT: _expected(host.expect, preflight),
        Check.AGENT: _NOTHING,
    }


def machine_of(preflight: Preflight, host: Host) -> Machine:
    """What decides which environments a host can serve. Of its GPUs only those that trials use count."""
    chosen = choose_gpus(host.gpus, preflight.topology.gpus).gpus
    # with `exclusive: host` trials use the first of them
    used = {place.uuid for place in used_of(chosen, host.exclusive)}
    gpus = tuple(
        GpuFacts(gpu.name, gpu.compute_capability, gpu.memory_bytes) for gpu in preflight.gpus if gpu.uuid in used
    )
    reason = None
    if not gpus:
        reason = NONE_USED if preflight.gpus else preflight.gpu_problem or "the host has no NVIDIA GPU"
    return Machine(
        driver_version=preflight.driver_version,
        gpus=gpus,
        gpu_reason=reason,
        trial_memory_bytes=preflight.memory_bytes,
        architecture=preflight.architecture,
    )


def _image_problem(image: WantedImage, machine: Machine) -> str | None:
    return environment_problem(image.demands, machine, "cpu" if image.demands.cuda is None else "cuda")


def _images(fitting: Mapping[str, WantedImage], missing: Mapping[str, WantedImage], wanted: Requirements) -> Finding:
    if not wanted.images:
        return nothing("none built")
    if not fitting:
        return warning(
            "none fits",
            f"none of the images built so far fits this host ({', '.join(wanted.images)}): build another with "
            "`taxmeter images build NAME`; `taxmeter images list` names them",
        )
    shown = f"{len(fitting) - len(missing)}/{len(fitting)}"
    if not missing:
        return fine(shown)
    lost = [name for name in missing if name not in wanted.here]
    names = ", ".join(missing)
    if not lost:
        return warning(shown, f"the engine does not have {names}: a sweep that needs it brings it from here first")
    is_bare = len(lost) == len(fitting)
    return Finding(
        Level.FAILURE if is_bare else Level.WARNING,
        shown,
        f"the engine does not have {names}, and neither this machine nor a registry has {', '.join(lost)}: build it "
        f"here with `taxmeter images build {' '.join(lost)}`, or bring it with `taxmeter images load`",
    )


def _driver(preflight: Preflight, machine: Machine, wanted: Requirements) -> Finding:
    if not preflight.gpus:
        return _NOTHING
    shown = preflight.driver_version or "?"
    built = {name: image for name, image in wanted.images.items() if image.demands.cuda is not None}
    problems = {name: problem for name, image in built.items() if (problem := _image_problem(image, machine))}
    if not built or len(problems) < len(built):
        return fine(shown)
    reasons = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    other, _ = newest_suitable(wanted.demands, {}, machine, "cuda")
    mend = (
        "update the driver" if other is None else f"update the driver, or `taxmeter images build {other}`, which fits"
    )
    return warning(shown, f"no image that is built serves its GPUs ({reasons}): {mend}")


def _disk(
    preflight: Preflight,
    engine: EngineFacts | None,
    missing: Mapping[str, WantedImage],
    work: str,
    own_directory: str | None,
) -> Finding:
    root = engine.root if engine is not None else None
    for_engine, for_work = preflight.free_bytes.get(root or ""), preflight.free_bytes.get(work)
    known = [free for free in (for_engine, for_work) if free is not None]
    kind = preflight.filesystems.get(own_directory or "")
    shared = None if own_directory is None else filesystem_problem(own_directory, kind)
    if shared is not None:
        return failure(kind or "", shared)
    if not known:
        return nothing("?")
    shown = f"{min(known) / GIB:.0f} GiB"
    needed = sum(image.built.size_bytes or 0 for image in missing.values())
    if for_engine is not None and for_engine < needed + NO_SPACE_BYTES:
        return failure(
            shown,
            f"{for_engine / GIB:.1f} GiB are free below {root}, but the missing images ({', '.join(missing)}) take "
            f"{needed / GIB:.1f} GiB: make room; `docker system df` shows what fills it",
        )
    if for_work is not None and for_work < NO_SPACE_BYTES:
        return failure(shown, f"the disk of {work} is full: make room, or name another `work_directory:`")
    if for_engine is not None and for_engine < LITTLE_BYTES:
        return warning(shown, f"only {for_engine / GIB:.1f} GiB are free below {root}: images of GPUs need more")
    return fine(shown)


def _governor(governors: tuple[str, ...]) -> Finding:
    if not governors:
        return nothing("none")
    shown = ",".join(governors)
    if governors == ("performance",):
        return fine(shown)
    return warning(
        shown,
        f"the governor is {shown}, so latencies follow the clock: `sudo cpupower frequency-set -g performance` there",
    )


def _gpu_users(preflight: Preflight) -> Finding:
    if not preflight.gpus:
        return _NOTHING
    if not preflight.gpu_processes:
        return fine("0")
    users = [f"{user.user}: {user.name} (process {user.pid})" for user in preflight.gpu_processes]
    told = ", ".join(some_of(users, 3))
    return warning(str(len(users)), f"its GPUs are in use: {told}; wait, or ask them, before you measure")


def _load(preflight: Preflight) -> Finding:
    if preflight.load_1m is None or not preflight.threads:
        return nothing("?")
    per_core = preflight.load_1m / preflight.threads
    shown = f"{per_core:.2f}"
    if per_core < BUSY_PER_CORE:
        return fine(shown)
    return warning(
        shown, f"load {preflight.load_1m:g} on {preflight.threads} cores: something else runs there (`top` says what)"
    )


def _clock(skew: Skew | None) -> Finding:
    if skew is None:
        return _NOTHING
    told = f"{_milliseconds(skew.offset_s, '+')}±{_milliseconds(skew.uncertainty_s)}"
    if abs(skew.offset_s) - skew.uncertainty_s < SKEW_S:
        return fine(told)
    side = "ahead of" if skew.offset_s > 0 else "behind"
    return warning(
        told, f"its clock is {abs(skew.offset_s):.1f} s {side} this machine's: `sudo timedatectl set-ntp true` on both"
    )


def _milliseconds(seconds: float, sign: str = "") -> str:
    return f"{seconds:{sign}.1f}s" if abs(seconds) >= 1 else f"{seconds * 1000:{sign}.0f}ms"


def _gpus(host: Host, preflight: Preflight, engine: EngineFacts | None) -> Finding:
    """One finding for all GPUs: the worst of what is wrong."""
    there = len(preflight.gpus)
    chosen = choose_gpus(host.gpus, preflight.topology.gpus)
    if chosen.problems:
        said = [*chosen.problems, *([preflight.gpu_problem] if preflight.gpu_problem else [])]
        return failure(f"{there}", f"{'; '.join(said)}: correct `gpus:`, or mend the host")
    if preflight.gpu_problem is not None:
        return warning(f"{there}?", preflight.gpu_problem)
    if there == 0:
        return nothing("none")
    seen = _seen(there, engine)
    if seen.level is Level.FAILURE:
        return seen
    try:
        cores = range(host.reserved_cores, preflight.threads or 1)
        make_slots(cores, preflight.topology, chosen.gpus, host.exclusive)
    except TooFewCoresError as error:
        return failure(seen.shown, str(error))
    if chosen.divided:
        are = "is" if len(chosen.divided) == 1 else "are"
        return warning(
            seen.shown,
            f"{', '.join(chosen.divided)} {are} divided into parts (MIG), which trials do not use: "
            f"`sudo nvidia-smi -mig 0 -i {','.join(chosen.divided)}` makes it whole",
        )
    return seen if len(chosen.gpus) == there else replace(seen, shown=f"{seen.shown}, {len(chosen.gpus)} used")


def _seen(there: int, engine: EngineFacts | None) -> Finding:
    inside = None if engine is None else engine.gpus
    if inside is None:
        return nothing(f"{there}")
    if inside.image is None:
        return warning(
            f"{there}, ? inside",
            "whether containers see the GPUs is not known, because none of our images is there to look from inside: "
            "bring one and check again",
        )
    shown = f"{there}, {inside.count or 0} inside"
    if inside.count == there:
        return fine(shown)
    if not inside.count:
        said = f" ({inside.problem})" if inside.problem else ""
        mend = (
            "Podman gives GPUs to nobody who asks as one asks Docker; install Docker there for trials of GPUs"
            if engine is not None and engine.is_podman
            else "install NVIDIA's container toolkit there, then `sudo nvidia-ctk runtime configure --runtime=docker` "
            "and restart the engine"
        )
        return failure(shown, f"containers see none of the {there} GPUs{said}: {mend}")
    return failure(
        shown,
        f"containers see {inside.count} of {there} GPUs: look for NVIDIA_VISIBLE_DEVICES and device limits in the "
        "engine's settings",
    )


def _expected(expected: Expectation, preflight: Preflight) -> Finding:
    """One finding for all that is expected; every mismatch stands in its line."""
    count = len([key for key in type(expected).model_fields if getattr(expected, key) is not None])
    if not count:
        return _NOTHING
    names = [gpu.name for gpu in preflight.gpus]
    wrong = expected.unmet(names, preflight.driver_version, preflight.cpu_model, preflight.memory_bytes)
    shown = f"{count - len(wrong)}/{count}"
    if not wrong:
        return fine(shown)
    return failure(shown, f"{'; '.join(wrong)}: mend the host, or correct `expect:`")


def version_finding(engine: EngineFacts, has_agent: bool) -> Finding:
    """Whether an engine that answers is new enough, and can carry an agent where the host gets one."""
    shown = f"{'podman ' if engine.is_podman else ''}{engine.version.partition('+')[0]}"
    if not engine.is_too_old:
        problem = engine.network_problem if has_agent else None
        return fine(shown) if problem is None else failure(shown, problem)
    oldest = ".".join(map(str, OLDEST_PODMAN if engine.is_podman else OLDEST_ENGINE))
    return failure(shown, f"the engine's version {engine.version} is too old: install {oldest} or newer")


def socket_problem(settings: Host, seen: Preflight) -> str | None:
    """Why the engine of a host cannot be used, as far as its socket tells; None if it may answer."""
    is_podman, socket = settings.engine == "podman", seen.socket
    if socket is None:
        places = " or ".join(socket.path for socket in seen.sockets)
        start = "`systemctl enable --now podman.socket`" if is_podman else "`sudo systemctl enable --now docker`"
        engine = settings.engine or "docker"
        return f"no engine: there is no socket {places}. Install {engine} there, or start it: {start}"
    if socket.state == "denied":
        mend = (
            "name its own socket as `engine: unix:///path`" if is_podman else f"`sudo usermod -aG docker {seen.user}`"
        )
        return f"permission denied: {seen.user} may not use {socket.path}: {mend} there, then log in anew"
    return None
