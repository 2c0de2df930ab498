"""From what was read to findings: what is a failure, what a warning, and what the line says."""

import re
from dataclasses import replace

import pytest

from orchestrator.cli.hosts import exit_code
from orchestrator.config import Connection, Exclusive, Expectation, Host
from orchestrator.environments import BuiltImage, ImageIdentity, host_network_problem
from orchestrator.errors import ExitCode
from orchestrator.hosts.check import (
    Check,
    EngineFacts,
    Finding,
    HostReport,
    Level,
    Preflight,
    Requirements,
    Skew,
    WantedImage,
    refusal,
    socket_problem,
)
from orchestrator.hosts.check.engine import GpusInside
from orchestrator.hosts.check.findings import judge
from orchestrator.hosts.check.preflight import EngineSocket, GpuProcess, PreflightGpu
from orchestrator.hosts.check.report import version_finding
from orchestrator.planning import GIB, Demands

A100 = PreflightGpu("GPU-1", "NVIDIA A100-SXM4-80GB", 80 * GIB, "8.0")
READING = Preflight(
    system="Linux",
    release="6.1",
    architecture="x86_64",
    host_name="h1",
    user="bench",
    groups=("bench",),
    cpu_model="AMD EPYC 7763 64-Core Processor",
    threads=128,
    memory_bytes=512 * GIB,
    load_1m=1.0,
    governors=("performance",),
    python=None,
    gpus=(),
    driver_version=None,
    gpu_problem=None,
    gpu_processes=(),
    sockets=(EngineSocket("/var/run/docker.sock", "listening"),),
    free_bytes={"/var/lib/docker": 100 * GIB, "/work": 100 * GIB},
)
WITH_GPUS = replace(READING, gpus=(A100, replace(A100, uuid="GPU-2")), driver_version="535.129.03")
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


def findings(
    reading: Preflight = READING,
    found: EngineFacts | None = None,
    requirements: Requirements | None = None,
    skew: Skew | None = None,
    host: Host = HOST,
) -> dict[Check, Finding]:
    own_directory = "/work" if host.connection is Connection.SSH else None
    needed = requirements or wanted(cpu=CPU)
    return judge(host, reading, found or engine("cpu"), skew, needed, "/work", own_directory)


def test_a_good_host_has_nothing_to_mend() -> None:
    found = findings(skew=Skew(0.002, 0.001))
    assert {finding.problem for finding in found.values()} == {None}
    assert found[Check.IMAGES] == Finding(Level.OK, "1/1")
    assert found[Check.GPU] == Finding(Level.NONE, "none")
    assert found[Check.CLOCK] == Finding(Level.OK, "+2ms±1ms")


@pytest.mark.parametrize(
    ("present", "here", "level", "expected"),
    [
        (["cpu", "cuda126"], [], Level.OK, None),
        (["cpu"], ["cuda126"], Level.WARNING, "does not have cuda126: a sweep that needs it brings it from here first"),
        (
            ["cpu"],
            [],
            Level.WARNING,
            "neither this machine nor a registry has cuda126: build it here with `taxmeter im",
        ),
        ([], ["cpu", "cuda126"], Level.WARNING, "the engine does not have cpu, cuda126: a sweep"),
        ([], [], Level.FAILURE, "neither this machine nor a registry has cpu, cuda126: build it here"),
    ],
)
def test_images_that_are_missing(present: list[str], here: list[str], level: Level, expected: str | None) -> None:
    found = findings(WITH_GPUS, engine(*present), wanted(*here, cpu=CPU, cuda126=CUDA12))[Check.IMAGES]
    assert found.level is level
    assert found.shown == f"{len(present)}/2"
    assert expected is None or expected in (found.problem or "")


def test_images_that_do_not_fit_are_not_missed() -> None:
    found = findings(requirements=wanted(cpu=CPU, cuda13=CUDA13))
    assert found[Check.IMAGES] == Finding(Level.OK, "1/1")
    arm = findings(replace(READING, architecture="aarch64"), engine())[Check.IMAGES]
    assert arm.level is Level.WARNING
    assert "none of the images built so far fits this host (cpu)" in (arm.problem or "")
    assert findings(requirements=wanted())[Check.IMAGES] == Finding(Level.NONE, "none built")


@pytest.mark.parametrize(
    ("inside", "level", "expected"),
    [
        (GpusInside(2, "cpu", None), Level.OK, None),
        (GpusInside(1, "cpu", None), Level.FAILURE, "containers see 1 of 2 GPUs"),
        (GpusInside(0, "cpu", None), Level.FAILURE, "install NVIDIA's container toolkit"),
        (
            GpusInside(None, "cpu", 'could not select device driver "" with capabilities: [[gpu]]'),
            Level.FAILURE,
            'containers see none of the 2 GPUs (could not select device driver "" with capabilities: [[gpu]]): install',
        ),
        (GpusInside(None, None, "no image"), Level.WARNING, "none of our images is there to look from inside"),
    ],
)
def test_gpus_are_looked_for_inside_a_container(inside: GpusInside, level: Level, expected: str | None) -> None:
    found = findings(WITH_GPUS, engine("cpu", gpus=inside))[Check.GPU]
    assert found.level is level
    assert expected is None or expected in (found.problem or "")


def test_a_gpu_without_a_driver() -> None:
    found = findings(replace(READING, gpu_problem="1 NVIDIA GPU on the bus, but there is no nvidia-smi"))[Check.GPU]
    assert found.level is Level.WARNING
    assert "no nvidia-smi" in (found.problem or "")


def test_a_driver_that_no_image_can_use_names_the_environment_that_fits() -> None:
    found = findings(WITH_GPUS, requirements=wanted(cpu=CPU, cuda13=CUDA13))[Check.DRIVER]
    assert found.level is Level.WARNING
    assert found.problem == (
        "no image that is built serves its GPUs (cuda13: driver 535.129.03 is older than 580, which CUDA 13.0 needs): "
        "update the driver, or `taxmeter images build cuda126`, which fits"
    )
    both = findings(WITH_GPUS, requirements=wanted(cpu=CPU, cuda13=CUDA13, cuda126=CUDA12))[Check.DRIVER]
    assert both == Finding(Level.OK, "535.129.03")


@pytest.mark.parametrize(
    ("free", "present", "level", "expected"),
    [
        (
            {"/var/lib/docker": 3 * GIB, "/work": 100 * GIB},
            [],
            Level.FAILURE,
            "3.0 GiB are free below /var/lib/docker, but",
        ),
        ({"/var/lib/docker": 8 * GIB, "/work": 100 * GIB}, ["cpu"], Level.WARNING, "only 8.0 GiB are free below"),
        ({"/var/lib/docker": 80 * GIB, "/work": 1000}, ["cpu"], Level.FAILURE, "the disk of /work is full"),
        ({"/var/lib/docker": 80 * GIB, "/work": GIB}, ["cpu"], Level.OK, ""),
        ({}, ["cpu"], Level.NONE, ""),
    ],
)
def test_disks_hold_what_is_missing(free: dict[str, int], present: list[str], level: Level, expected: str) -> None:
    found = findings(replace(READING, free_bytes=free), engine(*present))[Check.DISK]
    assert found.level is level
    assert expected in (found.problem or "")


def test_what_disturbs_is_a_warning() -> None:
    busy = replace(
        WITH_GPUS,
        governors=("powersave",),
        load_1m=64.0,
        gpu_processes=tuple(GpuProcess(number, "eve", GIB, "python") for number in range(5)),
    )
    found = findings(busy, engine("cpu", gpus=GpusInside(2, "cpu", None)), skew=Skew(-90.0, 0.1))
    assert "the governor is powersave" in (found[Check.GOVERNOR].problem or "")
    assert "load 64 on 128 cores" in (found[Check.LOAD].problem or "")
    assert "eve: python (process 0)" in (found[Check.GPU_USERS].problem or "")
    assert "and 2 more" in (found[Check.GPU_USERS].problem or "")
    assert "its clock is 90.0 s behind this machine's" in (found[Check.CLOCK].problem or "")
    assert all(finding.level is not Level.FAILURE for finding in found.values())


def test_a_skew_that_is_within_its_uncertainty_is_none() -> None:
    assert findings(skew=Skew(5.0, 4.5))[Check.CLOCK].level is Level.OK


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        (Expectation(gpu_count=4), "expected 4 GPUs, found 2"),
        (Expectation(gpu_model="NVIDIA H100*"), "expected GPUs NVIDIA H100*, found NVIDIA A100-SXM4-80GB"),
        (Expectation(driver=">=550"), "expected driver >=550, found 535.129.03"),
        (Expectation(cpu_model="*Xeon*"), "expected processor *Xeon*, found AMD EPYC 7763 64-Core Processor"),
        (
            Expectation(memory_bytes_min=1024 * GIB),
            "expected at least 1099511627776 bytes of memory, found 549755813888",
        ),
    ],
)
def test_a_host_that_is_not_as_expected_is_not_usable(expected: Expectation, line: str) -> None:
    found = findings(WITH_GPUS, host=HOST.model_copy(update={"expect": expected}))[Check.EXPECT]
    assert found == Finding(Level.FAILURE, "0/1", f"{line}: mend the host, or correct `expect:`")


def test_a_host_that_is_as_expected() -> None:
    expected = Expectation(
        gpu_count=2, gpu_model="NVIDIA A100*", driver=">=535,<581", cpu_model="*EPYC*", memory_bytes_min=GIB
    )
    found = findings(WITH_GPUS, host=HOST.model_copy(update={"expect": expected}))[Check.EXPECT]
    assert found == Finding(Level.OK, "5/5")
    nothing = findings(host=HOST.model_copy(update={"expect": Expectation(gpu_model="*", driver=">=1")}))[Check.EXPECT]
    assert (
        nothing.problem
        == "expected GPUs *, found none; expected driver >=1, found none: mend the host, or correct `expect:`"
    )


def test_engines_that_cannot_be_used_are_told_apart() -> None:
    denied = replace(READING, sockets=(EngineSocket("/var/run/docker.sock", "denied"),))
    assert socket_problem(HOST, denied) == (
        "permission denied: bench may not use /var/run/docker.sock: `sudo usermod -aG docker bench` there, then log in anew"
    )
    missing = replace(READING, sockets=(EngineSocket("/var/run/docker.sock", "missing"),))
    assert "no engine: there is no socket /var/run/docker.sock. Install docker there" in str(
        socket_problem(HOST, missing)
    )
    assert "the engine is down: nobody answers behind /s" in refusal(EngineSocket("/s", "silent"))
    assert "AllowStreamLocalForwarding yes" in refusal(EngineSocket("/s", "listening"))


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
        (["name=userns"], r"its engine maps users \(userns-remap\)"),
    ],
)
def test_an_engine_without_the_hosts_network_carries_no_agent(options: list[str], expected: str) -> None:
    problem = host_network_problem({"SecurityOptions": options})
    found = engine(network_problem=problem)
    remote = version_finding(found, has_agent=True)
    assert remote.level is Level.FAILURE
    assert re.match(expected, remote.problem or "")
    assert version_finding(found, has_agent=False).level is Level.OK
    assert host_network_problem({"SecurityOptions": ["name=apparmor"]}) is None


@pytest.mark.parametrize(
    ("kind", "connection", "level"),
    [
        ("nfs", Connection.SSH, Level.FAILURE),
        ("lustre", Connection.SSH, Level.FAILURE),
        ("ext2/ext3", Connection.SSH, Level.OK),
        ("tmpfs", Connection.SSH, Level.OK),
        (None, Connection.SSH, Level.OK),
        ("nfs", Connection.LOCAL, Level.OK),
    ],
)
def test_a_work_directory_is_of_one_host(kind: str | None, connection: Connection, level: Level) -> None:
    found = findings(
        replace(READING, filesystems={"/work": kind}), host=HOST.model_copy(update={"connection": connection})
    )
    assert found[Check.DISK].level is level
    assert (found[Check.DISK].problem or "/work is on a network file system").startswith("/work is on a network")


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


def with_gpus(*mig: bool) -> Preflight:
    gpus = tuple(replace(A100, uuid=f"GPU-{number}", mig=divided) for number, divided in enumerate(mig))
    return replace(READING, gpus=gpus, driver_version="535.129.03")


def gpu_finding(reading: Preflight, **settings: object) -> Finding:
    host = HOST.model_copy(update=settings)
    inside = GpusInside(len(reading.gpus), "cpu", None)
    return findings(reading, engine("cpu", gpus=inside), host=host)[Check.GPU]


def test_a_named_gpu_that_is_not_there_is_a_failure() -> None:
    found = gpu_finding(with_gpus(False, False), gpus=("0", "GPU-7*"))
    assert found.level is Level.FAILURE
    assert found.problem == "gpus names GPU-7*, and the host has 0: GPU-0, 1: GPU-1: correct `gpus:`, or mend the host"
    lost = gpu_finding(replace(with_gpus(False), gpu_problem="2 on the bus, 1 shown"), gpus=("1",))
    assert "2 on the bus, 1 shown" in (lost.problem or "")
    assert gpu_finding(READING, gpus=("0",)).problem == (
        "gpus names 0, and the host has no GPU: correct `gpus:`, or mend the host"
    )


def test_some_gpus_of_many_are_enough() -> None:
    assert gpu_finding(with_gpus(False, False), gpus=("1",)) == Finding(Level.OK, "2, 2 inside, 1 used")
    assert gpu_finding(with_gpus(False, False), gpus=()) == Finding(Level.OK, "2, 2 inside, 0 used")


def test_divided_gpus_are_not_used() -> None:
    found = gpu_finding(with_gpus(False, True))
    assert found.level is Level.WARNING
    assert "GPU-1 is divided into parts (MIG), which trials do not use: `sudo nvidia-smi -mig 0 -i GPU-1`" in (
        found.problem or ""
    )
    assert gpu_finding(with_gpus(False, True), gpus=("1",)).level is Level.FAILURE
    whole = findings(with_gpus(True), engine("cuda126"), wanted(cuda126=CUDA12))[Check.IMAGES]
    assert whole.shown == "none fits", "no environment is served by a GPU that trials do not use"


def test_more_gpus_than_cores_are_a_failure_if_each_is_to_run_trials() -> None:
    reading = replace(with_gpus(False, False), threads=2)
    assert gpu_finding(reading, exclusive=Exclusive.HOST, reserved_cores=1).level is Level.OK
    found = gpu_finding(reading, exclusive=Exclusive.GPU, reserved_cores=1)
    assert found.level is Level.FAILURE
    assert "2 GPUs at once need as many cores, and trials have 1 whole ones: name fewer in `gpus:`" in (
        found.problem or ""
    )
