"""From what was read to findings: what is a failure, what a warning, and what the line says."""

from dataclasses import replace
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
    return replace(READING, gpus=gpus, driver_version="535.129.03", **changes)


def looked_inside(count: int | None, image: str | None = "cpu", problem: str | None = None) -> EngineFacts:
    return engine("cpu", gpus=GpusInside(count, image, problem))


TWO, ONE_DIVIDED = with_gpus(False, False), with_gpus(False, True)
CPU_AND_CUDA = wanted(cpu=CPU, cuda126=CUDA12)
BUILT_HERE = wanted("cpu", "cuda126", cpu=CPU, cuda126=CUDA12)
INSIDE, ENGINE = looked_inside(2), {"/work": 100 * GIB}
SELECT = 'could not select device driver "" with capabilities: [[gpu]]'


def test_a_good_host_has_nothing_to_mend() -> None:
    found = judged(skew=Skew(0.002, 0.001))
    assert {finding.problem for finding in found.values()} == {None}
    assert found[Check.IMAGES] == Finding(Level.OK, "1/1")
    assert found[Check.GPU] == Finding(Level.NONE, "none")
    assert found[Check.CLOCK] == Finding(Level.OK, "+2ms±1ms")


@pytest.mark.parametrize(
    ("check", "level", "shown", "problem", "seen"),
    [
        # images
        (Check.IMAGES, Level.OK, "2/2", "", (TWO, engine("cpu", "cuda126"), CPU_AND_CUDA)),
        (Check.IMAGES, Level.WARNING, "1/2", "have cuda126: a sweep that needs it brings", (TWO, None, BUILT_HERE)),
        (Check.IMAGES, Level.WARNING, "1/2", "nor a registry has cuda126: build it here", (TWO, None, CPU_AND_CUDA)),
        (Check.IMAGES, Level.WARNING, "0/2", "does not have cpu, cuda126: a sweep", (TWO, engine(), BUILT_HERE)),
        (Check.IMAGES, Level.FAILURE, "0/2", "nor a registry has cpu, cuda126: build", (TWO, engine(), CPU_AND_CUDA)),
        (Check.IMAGES, Level.OK, "1/1", "", (READING, None, wanted(cpu=CPU, cuda13=CUDA13))),
        (Check.IMAGES, Level.NONE, "none built", "", (READING, None, wanted())),
        (Check.IMAGES, Level.WARNING, "none fits", "fits this host (cpu)", (replace(READING, architecture="aarch64"),)),
        # no environment is served by a GPU that trials do not use
        (Check.IMAGES, Level.WARNING, "none fits", "", (with_gpus(True), engine("cuda126"), wanted(cuda126=CUDA12))),
        # GPUs, as containers see them
        (Check.GPU, Level.OK, "2, 2 inside", "", (TWO, INSIDE)),
        (Check.GPU, Level.FAILURE, "2, 1 inside", "containers see 1 of 2 GPUs", (TWO, looked_inside(1))),
        (Check.GPU, Level.FAILURE, "2, 0 inside", "install NVIDIA's container toolkit", (TWO, looked_inside(0))),
        (Check.GPU, Level.FAILURE, "2, 0 inside", f"none of the 2 GPUs ({SELECT}): install", (TWO, looked_inside(None, problem=SELECT))),
        (Check.GPU, Level.WARNING, "2, ? inside", "none of our images is there to look", (TWO, looked_inside(None, None))),
        (Check.GPU, Level.WARNING, "0?", "no nvidia-smi", (replace(READING, gpu_problem="there is no nvidia-smi"),)),
        (Check.GPU, Level.WARNING, "2, 2 inside", "GPU-1 is divided into parts (MIG), which trials do not use: `sudo nvidia-smi -mig 0 -i GPU-1`", (ONE_DIVIDED, INSIDE)),
        # their drivers
        (Check.DRIVER, Level.OK, "535.129.03", "", (TWO, None, wanted(cpu=CPU, cuda13=CUDA13, cuda126=CUDA12))),
        (Check.DRIVER, Level.WARNING, "535.129.03", "serves its GPUs (cuda13: driver 535.129.03 is older than 580, which CUDA 13.0 needs): update the driver, or `taxmeter images build cuda126`, which fits", (TWO, None, wanted(cpu=CPU, cuda13=CUDA13))),
        # disks
        (Check.DISK, Level.NONE, "?", "", (replace(READING, free_bytes={}),)),
        (Check.DISK, Level.OK, "1 GiB", "", (replace(READING, free_bytes={"/var/lib/docker": 80 * GIB, "/work": GIB}),)),
        (Check.DISK, Level.WARNING, "8 GiB", "only 8.0 GiB are free below", (replace(READING, free_bytes={**ENGINE, "/var/lib/docker": 8 * GIB}),)),
        (Check.DISK, Level.FAILURE, "3 GiB", "3.0 GiB are free below /var/lib/docker, but", (replace(READING, free_bytes={**ENGINE, "/var/lib/docker": 3 * GIB}), engine())),
        (Check.DISK, Level.FAILURE, "0 GiB", "the disk of /work is full", (replace(READING, free_bytes={"/var/lib/docker": 80 * GIB, "/work": 1000}),)),
        # what disturbs
        (Check.GOVERNOR, Level.WARNING, "powersave", "the governor is powersave", (replace(READING, governors=("powersave",)),)),
        (Check.LOAD, Level.WARNING, "0.50", "load 64 on 128 cores", (replace(READING, load_1m=64.0),)),
        (Check.GPU_USERS, Level.WARNING, "5", "eve: python (process 2), and 2 more", (replace(TWO, gpu_processes=tuple(GpuProcess(pid, "eve", GIB, "python") for pid in range(5))),)),
        (Check.CLOCK, Level.WARNING, "-90.0s±100ms", "its clock is 90.0 s behind this machine's", (READING, None, None, Skew(-90.0, 0.1))),
        (Check.CLOCK, Level.OK, "+5.0s±4.5s", "", (READING, None, None, Skew(5.0, 4.5))),
    ],
)  # fmt: skip
def test_what_was_seen_is_a_finding(
    check: Check, level: Level, shown: str, problem: str, seen: tuple[Any, ...]
) -> None:
    found = judged(*seen)[check]
    assert (found.level, found.shown) == (level, shown)
    assert problem in (found.problem or "")
    assert (found.problem is None) is (level in (Level.OK, Level.NONE))


@pytest.mark.parametrize(
    ("reading", "settings", "level", "told"),
    [
        (TWO, {"gpus": ("1",)}, Level.OK, "2, 2 inside, 1 used"),
        (TWO, {"gpus": ()}, Level.OK, "2, 2 inside, 0 used"),
        (TWO, {"gpus": ("0", "GPU-7*")}, Level.FAILURE, "gpus names GPU-7*, and the host has 0: GPU-0, 1: GPU-1: correct `gpus:`, or mend"),
        (with_gpus(False, gpu_problem="2 on the bus, 1 shown"), {"gpus": ("1",)}, Level.FAILURE, "2 on the bus, 1 shown"),
        (READING, {"gpus": ("0",)}, Level.FAILURE, "gpus names 0, and the host has no GPU: correct `gpus:`, or mend the host"),
        (ONE_DIVIDED, {"gpus": ("1",)}, Level.FAILURE, "GPU-1"),
        (with_gpus(False, False, threads=2), {"exclusive": Exclusive.HOST, "reserved_cores": 1}, Level.OK, "2, 2 inside"),
        (with_gpus(False, False, threads=2), {"exclusive": Exclusive.GPU, "reserved_cores": 1}, Level.FAILURE, "2 GPUs at once need as many cores, and trials have 1 whole ones: name fewer in `gpus:`"),
    ],
)  # fmt: skip
def test_the_gpus_that_the_inventory_wants(
    reading: Preflight, settings: dict[str, Any], level: Level, told: str
) -> None:
    found = judged(reading, looked_inside(len(reading.gpus)), **settings)[Check.GPU]
    assert found.level is level
    assert told in (found.problem or found.shown)


@pytest.mark.parametrize(
    ("reading", "expected", "line"),
    [
        (TWO, Expectation(gpu_count=4), "expected 4 GPUs, found 2"),
        (TWO, Expectation(gpu_model="NVIDIA H100*"), "expected GPUs NVIDIA H100*, found NVIDIA A100-SXM4-80GB"),
        (TWO, Expectation(driver=">=550"), "expected driver >=550, found 535.129.03"),
        (TWO, Expectation(cpu_model="*Xeon*"), "expected processor *Xeon*, found AMD EPYC 7763 64-Core Processor"),
        (TWO, Expectation(memory_bytes_min=1024 * GIB), "expected at least 1099511627776 bytes of memory, found 549755813888"),
        (READING, Expectation(gpu_model="*", driver=">=1"), "expected GPUs *, found none; expected driver >=1, found none"),
    ],
)  # fmt: skip
def test_a_host_that_is_not_as_expected_is_not_usable(reading: Preflight, expected: Expectation, line: str) -> None:
    found = judged(reading, expect=expected)[Check.EXPECT]
    assert (found.level, found.problem) == (Level.FAILURE, f"{line}: mend the host, or correct `expect:`")


def test_a_host_that_is_as_expected() -> None:
    expected = Expectation(
        gpu_count=2, gpu_model="NVIDIA A100*", driver=">=535,<581", cpu_model="*EPYC*", memory_bytes_min=GIB
    )
    assert judged(TWO, expect=expected)[Check.EXPECT] == Finding(Level.OK, "5/5")


def test_an_engine_that_its_user_may_not_use_is_told_with_the_mend() -> None:
    reading = replace(READING, sockets=(EngineSocket("/s", "denied"),))
    expected = "permission denied: bench may not use /s: `sudo usermod -aG docker bench` there, then log in anew"
    assert expected in (socket_problem(HOST, reading) or "")


@pytest.mark.parametrize(
    ("version", "is_podman", "level"),
    [
        ("20.10.24+dfsg1", False, Level.OK),
        ("19.03.15", False, Level.FAILURE),
        ("29.0.1", False, Level.OK),
        ("4.3.1", True, Level.OK),
        ("3.4.4", True, Level.FAILURE),
        ("dev", False, Level.OK),
    ],
)
def test_an_engine_that_is_too_old(version: str, is_podman: bool, level: Level) -> None:
    finding = version_finding(engine(version=version, is_podman=is_podman), has_agent=True)
    assert finding.level is level
    assert (finding.problem is None) is (level is Level.OK)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["name=seccomp,profile=default", "name=rootless"], "its engine is rootless"),
        (["name=userns"], "its engine maps users (userns-remap)"),
    ],
)
def test_an_engine_without_the_hosts_network_carries_no_agent(options: list[str], expected: str) -> None:
    found = engine(network_problem=host_network_problem({"SecurityOptions": options}))
    remote = version_finding(found, has_agent=True)
    assert remote.level is Level.FAILURE
    assert (remote.problem or "").startswith(expected)
    assert version_finding(found, has_agent=False).level is Level.OK


@pytest.mark.parametrize(
    ("kind", "connection", "level"),
    [
        ("nfs", Connection.SSH, Level.FAILURE),
        ("lustre", Connection.SSH, Level.FAILURE),
        ("ext2/ext3", Connection.SSH, Level.OK),
        (None, Connection.SSH, Level.OK),
        ("nfs", Connection.LOCAL, Level.OK),
    ],
)
def test_a_work_directory_is_of_one_host(kind: str | None, connection: Connection, level: Level) -> None:
    found = judged(replace(READING, filesystems={"/work": kind}), connection=connection)[Check.DISK]
    assert found.level is level
    assert (found.problem or "/work is on a network file system").startswith("/work is on a network")


def report(name: str, usable: bool, active: bool = True) -> HostReport:
    level = Level.WARNING if usable else Level.FAILURE
    return HostReport(name, active, {Check.SSH: Finding(level, "", "x")})


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([report("a", True), report("b", True)], ExitCode.OK),
        ([report("a", True), report("b", False)], ExitCode.TRIALS_FAILED),
        ([report("a", False), report("b", False)], ExitCode.NO_USABLE_HOST),
        ([report("a", True, active=False), report("b", False)], ExitCode.NO_USABLE_HOST),
        ([report("a", True), report("b", True, active=False)], ExitCode.OK),
    ],
)
def test_the_exit_code_says_what_can_be_used(reports: list[HostReport], expected: ExitCode) -> None:
    assert exit_code(reports) is expected
