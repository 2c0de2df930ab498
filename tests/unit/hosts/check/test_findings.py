"""From what was read to findings: what is a failure, what a warning, and what the line says."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from orchestrator.cli.hosts import exit_code
from orchestrator.config import Connection, Exclusive, Expectation, Host
from orchestrator.environments import BuiltImage, ImageIdentity, host_network_problem
from orchestrator.errors import ExitCode
from orchestrator.hosts.check import Check, Finding, HostReport, Level
from orchestrator.hosts.check.clock import Skew
from orchestrator.hosts.check.engine import EngineFacts, GpusInside, Requirements, WantedImage
from orchestrator.hosts.check.findings import judge, socket_problem, version_finding
from orchestrator.hosts.check.preflight import EngineSocket, GpuProcess, Preflight, PreflightGpu
from orchestrator.planning import GIB, Demands

A100 = PreflightGpu("GPU-1", "NVIDIA A100-SXM4-80GB", 80 * GIB, "8.0")
READING = Preflight(
    system="Linux", release="6.1", architecture="x86_64", host_name="h1", user="bench", groups=("bench",),
    cpu_model="AMD EPYC 7763 64-Core Processor", threads=128, memory_bytes=512 * GIB, load_1m=1.0,
    governors=("performance",), python=None, gpus=(), driver_version=None, gpu_problem=None, gpu_processes=(),
    sockets=(EngineSocket("/var/run/docker.sock", "listening"),),
    free_bytes={"/var/lib/docker": 100 * GIB, "/work": 100 * GIB},
)  # fmt: skip
CPU, CUDA12, CUDA13 = (
    Demands("2026-10", architecture="x86_64"),
    Demands("2025-10", "12.6", "525", ("8.0",), architecture="x86_64"),
    Demands("2026-10", "13.0", "580", ("8.0",), architecture="x86_64"),
)
DRIVER = "535.129.03"
HOST = Host(connection=Connection.SSH, address="h1")


def built(name: str) -> BuiltImage:
    return BuiltImage(
        reference=f"taxmeter/{name}:1", image_id=f"sha256:{name}", repo_digest=None, layers=("a",), lock_sha256="l",
        recipe_sha256="r", base="b", config_sha256="c", size_bytes=6 * GIB, versions={}, facts={},
    )  # fmt: skip


def wanted(*here: str, **demands: Demands) -> Requirements:
    images = {name: WantedImage(built(name), needs) for name, needs in demands.items()}
    return Requirements(images, {"cpu": CPU, "cuda126": CUDA12, "cuda13": CUDA13}, frozenset(here))


def engine(*images: str, gpus: GpusInside | None = None, **changes: object) -> EngineFacts:
    present = {name: ImageIdentity(f"sha256:{name}", "c", ("a",)) for name in images}
    return replace(EngineFacts("24.0.7", False, "/var/lib/docker", present, gpus), **changes)  # type: ignore[arg-type]


def judged(
    reading: Preflight = READING,
    found: EngineFacts | None = None,
    requirements: Requirements | None = None,
    skew: Skew | None = None,
    **settings: Any,
) -> dict[Check, Finding]:
    host = HOST.model_copy(update=settings)
    own_directory = "/work" if host.connection is Connection.SSH else None
    return judge(host, reading, found or engine("cpu"), skew, requirements or wanted(cpu=CPU), "/work", own_directory)


def with_gpus(*mig: bool, **changes: Any) -> Preflight:
    gpus = tuple(replace(A100, uuid=f"GPU-{number}", mig=divided) for number, divided in enumerate(mig))
    return replace(READING, gpus=gpus, driver_version=DRIVER, **changes)


def looked_inside(count: int | None, image: str | None = "cpu", problem: str | None = None) -> EngineFacts:
    return engine("cpu", gpus=GpusInside(count, image, problem))


TWO, ONE_DIVIDED, TWO_CORES = with_gpus(False, False), with_gpus(False, True), with_gpus(False, False, threads=2)
CPU_AND_CUDA = wanted(cpu=CPU, cuda126=CUDA12)
BUILT_HERE = wanted("cpu", "cuda126", cpu=CPU, cuda126=CUDA12)
OK, NONE, WARNING, FAILURE = Level.OK, Level.NONE, Level.WARNING, Level.FAILURE
FIVE = tuple(GpuProcess(pid, "eve", GIB, "python") for pid in range(5))
TOO_OLD = (
    f"driver {DRIVER} is older than 580, which CUDA 13.0 needs): update the driver, or `taxmeter images build cuda126`"
)
MIG = "which trials do not use: `sudo nvidia-smi -mig 0 -i GPU-1`"
SELECT = 'could not select device driver "" with capabilities: [[gpu]]'
INSIDE, REFUSED = looked_inside(2), looked_inside(None, problem=SELECT)


def seeing(*seen: Any, **settings: Any) -> Callable[[], dict[Check, Finding]]:
    """What is judged when a test runs, as a row of a table has it."""
    return partial(judged, *seen, **settings)


def changed(**changes: Any) -> Callable[[], dict[Check, Finding]]:
    return seeing(replace(READING, **changes))


def free(engine: float = 100, work: float = 100) -> Preflight:
    """With so many GiB on the disks of the engine and of the work directory."""
    return replace(READING, free_bytes={"/var/lib/docker": int(engine * GIB), "/work": int(work * GIB)})


def on(kind: str | None, connection: Connection = Connection.SSH) -> Callable[[], dict[Check, Finding]]:
    return seeing(replace(READING, filesystems={"/work": kind}), connection=connection)


def expecting(reading: Preflight = TWO, **expected: Any) -> Callable[[], dict[Check, Finding]]:
    return seeing(reading, expect=Expectation(**expected))


def test_a_good_host_has_nothing_to_mend() -> None:
    found = judged(skew=Skew(0.002, 0.001))
    assert {finding.problem for finding in found.values()} == {None}
    assert found[Check.IMAGES] == Finding(Level.OK, "1/1")
    assert found[Check.GPU] == Finding(Level.NONE, "none")
    assert found[Check.CLOCK] == Finding(Level.OK, "+2ms±1ms")


@pytest.mark.parametrize(
    ("check", "level", "shown", "problem", "found"),
    [
        # images
        (Check.IMAGES, OK, "2/2", "", seeing(TWO, engine("cpu", "cuda126"), CPU_AND_CUDA)),
        (Check.IMAGES, WARNING, "1/2", "have cuda126: a sweep that needs", seeing(TWO, None, BUILT_HERE)),
        (Check.IMAGES, WARNING, "1/2", "nor a registry has cuda126: build it here", seeing(TWO, None, CPU_AND_CUDA)),
        (Check.IMAGES, WARNING, "0/2", "does not have cpu, cuda126: a sweep", seeing(TWO, engine(), BUILT_HERE)),
        (Check.IMAGES, FAILURE, "0/2", "nor a registry has cpu, cuda126: build", seeing(TWO, engine(), CPU_AND_CUDA)),
        (Check.IMAGES, OK, "1/1", "", seeing(READING, None, wanted(cpu=CPU, cuda13=CUDA13))),
        (Check.IMAGES, NONE, "none built", "", seeing(READING, None, wanted())),
        (Check.IMAGES, WARNING, "none fits", "fits this host (cpu)", changed(architecture="aarch64")),
        # no environment is served by a GPU that trials do not use
        (Check.IMAGES, WARNING, "none fits", "", seeing(with_gpus(True), engine("cuda126"), wanted(cuda126=CUDA12))),
        # GPUs, as containers see them
        (Check.GPU, OK, "2, 2 inside", "", seeing(TWO, INSIDE)),
        (Check.GPU, FAILURE, "2, 1 inside", "containers see 1 of 2 GPUs", seeing(TWO, looked_inside(1))),
        (Check.GPU, FAILURE, "2, 0 inside", "install NVIDIA's container toolkit", seeing(TWO, looked_inside(0))),
        (Check.GPU, FAILURE, "2, 0 inside", f"the 2 GPUs ({SELECT}): install", seeing(TWO, REFUSED)),
        (Check.GPU, WARNING, "2, ? inside", "none of our images is there", seeing(TWO, looked_inside(None, None))),
        (Check.GPU, WARNING, "0?", "no nvidia-smi", changed(gpu_problem="there is no nvidia-smi")),
        (Check.GPU, WARNING, "2, 2 inside", f"GPU-1 is divided into parts (MIG), {MIG}", seeing(ONE_DIVIDED, INSIDE)),
        # as the inventory wants them
        (Check.GPU, OK, "2, 2 inside, 1 used", "", seeing(TWO, INSIDE, gpus=("1",))),
        (Check.GPU, OK, "2, 2 inside, 0 used", "", seeing(TWO, INSIDE, gpus=())),
        (Check.GPU, FAILURE, "2", "names GPU-7*, and the host has 0: GPU-0, 1: GPU-1: correct `gpus:`",
         seeing(TWO, INSIDE, gpus=("0", "GPU-7*"))),
        (Check.GPU, FAILURE, "1", "2 on the bus, 1 shown",
         seeing(with_gpus(False, gpu_problem="2 on the bus, 1 shown"), looked_inside(1), gpus=("1",))),
        (Check.GPU, FAILURE, "0", "names 0, and the host has no GPU: correct `gpus:`", seeing(gpus=("0",))),
        (Check.GPU, FAILURE, "2", "GPU-1", seeing(ONE_DIVIDED, INSIDE, gpus=("1",))),
        (Check.GPU, OK, "2, 2 inside", "", seeing(TWO_CORES, INSIDE, exclusive=Exclusive.HOST, reserved_cores=1)),
        (Check.GPU, FAILURE, "2, 2 inside", "2 GPUs at once need as many cores, and trials have 1 whole ones",
         seeing(TWO_CORES, INSIDE, exclusive=Exclusive.GPU, reserved_cores=1)),
        # their drivers
        (Check.DRIVER, OK, DRIVER, "", seeing(TWO, None, wanted(cpu=CPU, cuda13=CUDA13, cuda126=CUDA12))),
        (Check.DRIVER, WARNING, DRIVER, TOO_OLD,
         seeing(TWO, None, wanted(cpu=CPU, cuda13=CUDA13))),
        # disks
        (Check.DISK, NONE, "?", "", changed(free_bytes={})),
        (Check.DISK, OK, "1 GiB", "", seeing(free(work=1))),
        (Check.DISK, WARNING, "8 GiB", "only 8.0 GiB are free below", seeing(free(engine=8))),
        (Check.DISK, FAILURE, "3 GiB", "3.0 GiB are free below /var/lib/docker, but", seeing(free(engine=3), engine())),
        (Check.DISK, FAILURE, "0 GiB", "the disk of /work is full", seeing(free(work=1e-6))),
        (Check.DISK, FAILURE, "nfs", "/work is on a network file system", on("nfs")),
        (Check.DISK, FAILURE, "lustre", "/work is on a network file system", on("lustre")),
        (Check.DISK, OK, "100 GiB", "", on("ext2/ext3")),
        (Check.DISK, OK, "100 GiB", "", on(None)),
        (Check.DISK, OK, "100 GiB", "", on("nfs", Connection.LOCAL)),
        # what disturbs
        (Check.GOVERNOR, WARNING, "powersave", "the governor is powersave", changed(governors=("powersave",))),
        (Check.LOAD, WARNING, "0.50", "load 64 on 128 cores", changed(load_1m=64.0)),
        (Check.GPU_USERS, WARNING, "5", "eve: python (process 2), and 2", seeing(replace(TWO, gpu_processes=FIVE))),
        (Check.CLOCK, WARNING, "-90.0s±100ms", "its clock is 90.0 s behind this", seeing(skew=Skew(-90.0, 0.1))),
        (Check.CLOCK, OK, "+5.0s±4.5s", "", seeing(skew=Skew(5.0, 4.5))),
        # what the inventory expects
        (Check.EXPECT, OK, "5/5", "", expecting(gpu_count=2, gpu_model="NVIDIA A100*", driver=">=535,<581",
                                                cpu_model="*EPYC*", memory_bytes_min=GIB)),
        (Check.EXPECT, FAILURE, "0/1", "4 GPUs, found 2: mend the host, or correct `expect:`", expecting(gpu_count=4)),
        (Check.EXPECT, FAILURE, "0/1", "H100*, found NVIDIA A100-SXM4-80GB:", expecting(gpu_model="NVIDIA H100*")),
        (Check.EXPECT, FAILURE, "0/1", f"expected driver >=550, found {DRIVER}:", expecting(driver=">=550")),
        (Check.EXPECT, FAILURE, "0/1", "processor *Xeon*, found AMD EPYC 7763", expecting(cpu_model="*Xeon*")),
        (Check.EXPECT, FAILURE, "0/1", "1099511627776 bytes of memory, found 549755813888:",
         expecting(memory_bytes_min=1024 * GIB)),
        (Check.EXPECT, FAILURE, "0/2", "expected GPUs *, found none; expected driver >=1, found none:",
         expecting(READING, gpu_model="*", driver=">=1")),
    ],
)  # fmt: skip
def test_what_was_seen_is_a_finding(
    check: Check, level: Level, shown: str, problem: str, found: Callable[[], dict[Check, Finding]]
) -> None:
    finding = found()[check]
    assert (finding.level, finding.shown) == (level, shown)
    assert problem in (finding.problem or "")
    assert (finding.problem is None) is (level in (OK, NONE))


def test_an_engine_that_its_user_may_not_use_is_told_with_the_mend() -> None:
    told = socket_problem(HOST, replace(READING, sockets=(EngineSocket("/s", "denied"),)))
    assert "bench may not use /s: `sudo usermod -aG docker bench` there" in (told or "")


def without_network(*options: str) -> EngineFacts:
    return engine(network_problem=host_network_problem({"SecurityOptions": options}))


@pytest.mark.parametrize(
    ("found", "has_agent", "level", "told"),
    [
        *((engine(version=version), True, OK, "") for version in ("20.10.24+dfsg1", "29.0.1", "dev")),
        (engine(version="19.03.15"), True, FAILURE, "19.03.15"),
        (engine(version="4.3.1", is_podman=True), True, OK, ""),
        (engine(version="3.4.4", is_podman=True), True, FAILURE, "3.4.4"),
        # an agent has the host's network
        (without_network("name=seccomp,profile=default", "name=rootless"), True, FAILURE, "its engine is rootless"),
        (without_network("name=userns"), True, FAILURE, "its engine maps users (userns-remap)"),
        *((without_network(name), False, OK, "") for name in ("name=rootless", "name=userns")),
    ],
)
def test_an_engine_that_is_too_old_or_has_no_network_of_the_host(
    found: EngineFacts, has_agent: bool, level: Level, told: str
) -> None:
    finding = version_finding(found, has_agent=has_agent)
    assert (finding.level, finding.problem is None) == (level, level is OK)
    assert told in (finding.problem or "")


GOOD, BAD, DRAINED = (True, True), (False, True), (True, False)
"""Whether a host can be used, and takes trials."""


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([GOOD, GOOD], ExitCode.OK),
        ([GOOD, BAD], ExitCode.TRIALS_FAILED),
        ([BAD, BAD], ExitCode.NO_USABLE_HOST),
        ([DRAINED, BAD], ExitCode.NO_USABLE_HOST),
        ([GOOD, DRAINED], ExitCode.OK),
    ],
)
def test_the_exit_code_says_what_can_be_used(hosts: list[tuple[bool, bool]], expected: ExitCode) -> None:
    reports = [
        HostReport("h", active, {Check.SSH: Finding(WARNING if usable else FAILURE, "", "x")})
        for usable, active in hosts
    ]
    assert exit_code(reports) is expected
