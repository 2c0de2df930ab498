"""Turns what was read about a host into findings: pure, so that each line can be tested without a host."""

from collections.abc import Mapping

from orchestrator.config import Connection, Host
from orchestrator.hosts.checking.clock import Skew
from orchestrator.hosts.checking.engine import EngineReading, WantedImage
from orchestrator.hosts.checking.expecting import expect_finding
from orchestrator.hosts.checking.filesystem import filesystem_problem
from orchestrator.hosts.checking.gpus import gpu_finding, used_gpus
from orchestrator.hosts.checking.reading import GpuReading, HostReading
from orchestrator.hosts.checking.report import Check, Finding, Level, Requirements
from orchestrator.planning import GIB, NONE_USED, GpuFacts, Machine, environment_problem, newest_suitable

BUSY_PER_CORE = 0.25
"""A load per core from which a host is called busy: a neighbour on every fourth core."""
SKEW_S = 1.0
"""From here on the times of two hosts' rows are in the wrong order."""
LITTLE_BYTES = 10 * GIB
"""For an engine: an environment for GPUs takes most of it."""
NO_SPACE_BYTES = GIB // 10

_NOTHING = Finding(Level.NONE, "-")


def judge(
    host: Host, reading: HostReading, engine: EngineReading | None, skew: Skew | None, wanted: Requirements, work: str
) -> dict[Check, Finding]:
    """What follows from what was read, for all checks but those of SSH and of the engine itself.

    Args:
        host: as the inventory has it.
        reading: what the host said.
        engine: what its engine said; null if none answered.
        skew: of its clock; null if it was not measured.
        wanted: what it is compared with.
        work: the work directory.
    """
    machine = machine_of(reading, host)
    fitting = {name: image for name, image in wanted.images.items() if _image_problem(image, machine) is None}
    missing = {} if engine is None else {name: one for name, one in fitting.items() if name not in engine.images}
    return {
        Check.IMAGES: _NOTHING if engine is None else _images(fitting, missing, wanted),
        Check.GPU: gpu_finding(host, reading, engine),
        Check.DRIVER: _driver(reading, machine, wanted),
        Check.DISK: _disk(host, reading, engine, missing, work),
        Check.GOVERNOR: _governor(reading.governors),
        Check.GPU_USERS: _gpu_users(reading),
        Check.LOAD: _load(reading),
        Check.CLOCK: _clock(skew),
        Check.EXPECT: expect_finding(host.expect, reading),
        Check.AGENT: _NOTHING,
    }


def machine_of(reading: HostReading, host: Host) -> Machine:
    """What decides which environments a host can serve. Of its GPUs only those that trials use count."""
    used = {place.uuid for place in used_gpus(host, reading)}
    gpus = tuple(_gpu_facts(gpu) for gpu in reading.gpus if gpu.uuid in used)
    reason = None
    if not gpus:
        reason = NONE_USED if reading.gpus else reading.gpu_problem or "the host has no NVIDIA GPU"
    return Machine(
        driver_version=reading.driver_version,
        gpus=gpus,
        gpu_reason=reason,
        trial_memory_bytes=reading.memory_bytes,
        architecture=reading.architecture,
    )


def _gpu_facts(gpu: GpuReading) -> GpuFacts:
    return GpuFacts(gpu.name, gpu.compute_capability, gpu.memory_bytes)


def _image_problem(image: WantedImage, machine: Machine) -> str | None:
    return environment_problem(image.demands, machine, "cpu" if image.demands.cuda is None else "cuda")


def _images(fitting: Mapping[str, WantedImage], missing: Mapping[str, WantedImage], wanted: Requirements) -> Finding:
    if not wanted.images:
        return Finding(Level.NONE, "none built")
    if not fitting:
        return Finding(
            Level.WARNING,
            "none fits",
            f"none of the images built so far fits this host ({', '.join(wanted.images)}): build another with "
            "`taxmeter images build NAME`; `taxmeter images list` names them",
        )
    shown = f"{len(fitting) - len(missing)}/{len(fitting)}"
    if not missing:
        return Finding(Level.OK, shown)
    lost = [name for name in missing if name not in wanted.here]
    names = ", ".join(missing)
    if not lost:
        return Finding(
            Level.WARNING, shown, f"the engine does not have {names}: a sweep that needs it brings it from here first"
        )
    is_bare = len(lost) == len(fitting)
    return Finding(
        Level.FAILURE if is_bare else Level.WARNING,
        shown,
        f"the engine does not have {names}, and neither this machine nor a registry has {', '.join(lost)}: build it "
        f"here with `taxmeter images build {' '.join(lost)}`, or bring it with `taxmeter images load`",
    )


def _driver(reading: HostReading, machine: Machine, wanted: Requirements) -> Finding:
    if not reading.gpus:
        return _NOTHING
    shown = reading.driver_version or "?"
    built = {name: image for name, image in wanted.images.items() if image.demands.cuda is not None}
    problems = {name: problem for name, image in built.items() if (problem := _image_problem(image, machine))}
    if not built or len(problems) < len(built):
        return Finding(Level.OK, shown)
    reasons = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    other, _ = newest_suitable(wanted.demands, {}, machine, "cuda")
    mend = (
        "update the driver" if other is None else f"update the driver, or `taxmeter images build {other}`, which fits"
    )
    return Finding(Level.WARNING, shown, f"no image that is built serves its GPUs ({reasons}): {mend}")


def _disk(
    host: Host, reading: HostReading, engine: EngineReading | None, missing: Mapping[str, WantedImage], work: str
) -> Finding:
    root = engine.root if engine is not None else None
    for_engine, for_work = reading.free_bytes.get(root or ""), reading.free_bytes.get(work)
    known = [free for free in (for_engine, for_work) if free is not None]
    # the files of this machine's own trials are the project's, wherever that is
    shared = filesystem_problem(work, reading.filesystems.get(work)) if host.connection is Connection.SSH else None
    if shared is not None:
        return Finding(Level.FAILURE, reading.filesystems[work] or "", shared)
    if not known:
        return Finding(Level.NONE, "?")
    shown = f"{min(known) / GIB:.0f} GiB"
    needed = sum(image.built.size_bytes or 0 for image in missing.values())
    if for_engine is not None and for_engine < needed + NO_SPACE_BYTES:
        return Finding(
            Level.FAILURE,
            shown,
            f"{for_engine / GIB:.1f} GiB are free below {root}, but the missing images ({', '.join(missing)}) take "
            f"{needed / GIB:.1f} GiB: make room; `docker system df` shows what fills it",
        )
    if for_work is not None and for_work < NO_SPACE_BYTES:
        return Finding(
            Level.FAILURE, shown, f"the disk of {work} is full: make room, or name another `work_directory:`"
        )
    if for_engine is not None and for_engine < LITTLE_BYTES:
        return Finding(
            Level.WARNING, shown, f"only {for_engine / GIB:.1f} GiB are free below {root}: images of GPUs need more"
        )
    return Finding(Level.OK, shown)


def _governor(governors: tuple[str, ...]) -> Finding:
    if not governors:
        return Finding(Level.NONE, "none")
    shown = ",".join(governors)
    if governors == ("performance",):
        return Finding(Level.OK, shown)
    return Finding(
        Level.WARNING,
        shown,
        f"the governor is {shown}, so latencies follow the clock: `sudo cpupower frequency-set -g performance` there",
    )


def _gpu_users(reading: HostReading) -> Finding:
    if not reading.gpus:
        return _NOTHING
    if not reading.gpu_processes:
        return Finding(Level.OK, "0")
    told = ", ".join(f"{one.user}: {one.name} (process {one.pid})" for one in reading.gpu_processes[:3])
    count = len(reading.gpu_processes)
    more = f" and {count - 3} more" if count > 3 else ""
    return Finding(
        Level.WARNING, str(count), f"its GPUs are in use: {told}{more}; wait, or ask them, before you measure"
    )


def _load(reading: HostReading) -> Finding:
    if reading.load_1m is None or not reading.threads:
        return Finding(Level.NONE, "?")
    per_core = reading.load_1m / reading.threads
    shown = f"{per_core:.2f}"
    if per_core < BUSY_PER_CORE:
        return Finding(Level.OK, shown)
    return Finding(
        Level.WARNING,
        shown,
        f"load {reading.load_1m:g} on {reading.threads} cores: something else runs there (`top` says what)",
    )


def _clock(skew: Skew | None) -> Finding:
    if skew is None:
        return _NOTHING
    told = f"{_milliseconds(skew.offset_s, '+')}±{_milliseconds(skew.uncertainty_s)}"
    if abs(skew.offset_s) - skew.uncertainty_s < SKEW_S:
        return Finding(Level.OK, told)
    side = "ahead of" if skew.offset_s > 0 else "behind"
    return Finding(
        Level.WARNING,
        told,
        f"its clock is {abs(skew.offset_s):.1f} s {side} this machine's: `sudo timedatectl set-ntp true` on both",
    )


def _milliseconds(seconds: float, sign: str = "") -> str:
    return f"{seconds:{sign}.1f}s" if abs(seconds) >= 1 else f"{seconds * 1000:{sign}.0f}ms"
