"""What every kind of host does alike: this machine, itself over SSH, itself as a node of Ray, and a pretended one."""

import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from ruamel.yaml import YAML

from orchestrator.config import Connection, Host, load_inventory
from orchestrator.environments import BuiltImage, StoredImage, connect
from orchestrator.errors import InfrastructureError
from orchestrator.execution.docker import LABEL
from orchestrator.files import ProjectFiles
from orchestrator.hosts import HostAccess, HostFacts, open_hosts
from orchestrator.hosts import local as local_module
from orchestrator.hosts.check import Check, Level
from orchestrator.hosts.check.engine import EngineQuestion, Requirements, WantedImage, engine_facts
from orchestrator.hosts.local import FactsQuestion, LocalHost, facts_here
from orchestrator.hosts.provision import EnvironmentsWanted, Recipes, unavailable_environments
from orchestrator.hosts.ssh import SshHost
from orchestrator.planning import Demands
from runners.system import SystemRoot, collect, describe_system
from tests.conftest import PROJECT
from tests.fake_host import FakeEngine, FakeHost
from tests.ray_nodes import RayNodes
from tests.sshd import running_sshd

ONLY_RAY = os.environ.get("TAXMETER_CONFORMANCE") == "ray"
"""Whether this is the process that has joined Ray, which a process does once."""

NAME = "seldom-named"
KINDS = ["ray"] if ONLY_RAY else ["local", "ssh", "fake"]
LIMIT_S = 60.0


@pytest.fixture(scope="module", params=KINDS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostAccess]:
    directory = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "fake":
            settings = Host(connection=Connection.LOCAL)
            facts = LocalHost(NAME, settings, str(directory / "work")).facts()
            yield FakeHost(NAME, settings, facts, FakeEngine())
            return
        if request.param == "local":
            hosts = {NAME: {"connection": "local", "work_directory": str(directory / "work")}}
            known: dict[str, Any] = {"hosts": hosts}
        elif request.param == "ssh":
            # its python3 has the packages, as a host's own seldom does
            packages = f"SetEnv PYTHONPATH={sysconfig.get_path('purelib')}"
            sshd = stack.enter_context(running_sshd(directory / "sshd", packages))
            known = {"hosts": {NAME: sshd.settings(work_directory=str(directory / "work"))}}
        else:
            monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
            nodes = stack.enter_context(RayNodes([NAME], directory))
            monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(nodes.token))
            hosts = {NAME: {"connection": "ray", "work_directory": str(directory / "work")}}
            known = {"ray_address": nodes.address, "hosts": hosts}
        path = directory / "hosts.yaml"
        YAML(typ="safe").dump({"version": 1, **known}, path)
        inventory = load_inventory(path)
        opened = stack.enter_context(open_hosts(inventory.hosts, inventory, ProjectFiles(PROJECT)))
        yield opened[NAME]


@pytest.fixture(scope="module")
def here() -> HostFacts:
    return LocalHost(NAME, Host(connection=Connection.LOCAL), str(PROJECT)).facts()


def test_facts_are_those_of_the_machine(host: HostAccess, here: HostFacts) -> None:
    facts = host.facts()
    for name in ("host", "cores", "architecture", "cpu_model", "gpus", "gpu_driver_version", "topology"):
        assert getattr(facts, name) == getattr(here, name), name
    assert facts.cores
    assert facts.memory_bytes
    assert facts.cpu_model
    # A login does not have the variable that says where our engine is
    if not isinstance(host, SshHost) or "DOCKER_HOST" not in os.environ:
        assert (facts.isolation, facts.isolation_reason) == (here.isolation, here.isolation_reason)
    assert (facts.gpu_reason is None) == bool(facts.gpus)
    assert Path(facts.work_directory).is_absolute()
    if facts.fingerprint is not None:
        assert facts.fingerprint.private == here.fingerprint.private  # type: ignore[union-attr]
        assert facts.memory_bytes == here.memory_bytes


def test_facts_are_looked_at_once(host: HostAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    before = host.facts()
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(local_module, "collect", None)
    assert host.facts() == before


def asked(host: HostAccess, name: str) -> str:
    """What comes back of a name that goes there."""
    return host.call(facts_here, FactsQuestion(name, host.settings, "/x"), LIMIT_S).host


def test_a_function_runs_there_and_its_answer_comes_back(host: HostAccess) -> None:
    assert asked(host, "a \u00e4\n\x00") == "a \u00e4\n\x00"


def test_what_needs_no_packages_runs_there_too(host: HostAccess, here: HostFacts) -> None:
    document = host.call(describe_system, SystemRoot(), LIMIT_S)
    assert here.fingerprint is not None
    assert document["hw_id"] == describe_system(SystemRoot())["hw_id"]
    assert document["fingerprint"]["private"]["boot_id"] == collect().private.boot_id  # type: ignore[union-attr]


def test_what_a_function_raises_is_raised_here(host: HostAccess) -> None:
    with pytest.raises(InfrastructureError, match="^no Docker engine answers at unix:///nowhere: there is no such soc"):
        host.call(engine_facts, EngineQuestion("unix:///nowhere", {}, False, LIMIT_S), LIMIT_S)
    nothing = EnvironmentsWanted((), "/nowhere", Recipes("/nowhere", {}))
    with pytest.raises(InfrastructureError, match="ConfigurationError: .*images.yaml"):
        host.call(unavailable_environments, nothing, LIMIT_S)


def test_a_call_ends_with_its_time(host: HostAccess, tmp_path: Path) -> None:
    begun, silent = time.monotonic(), tmp_path / "silent"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(silent))
        server.listen()
        with pytest.raises(InfrastructureError, match="no answer within "):
            host.call(engine_facts, EngineQuestion(f"unix://{silent}", {}, False, LIMIT_S), 3.0)
    assert time.monotonic() - begun < 30


def test_several_calls_at_once_get_their_own_answers(host: HostAccess) -> None:
    words = [str(number) for number in range(4)]
    with ThreadPoolExecutor(len(words)) as threads:
        assert list(threads.map(lambda word: asked(host, word), words)) == words


def test_files_are_placed_whole(host: HostAccess) -> None:
    directory = PurePosixPath(host.facts().work_directory, "a b", "deeper")
    whole = bytes(range(256)) * 1000
    host.place({"first": b"old", "in/second one": b""}, directory)
    host.place({"first": whole}, directory)
    assert Path(directory, "first").read_bytes() == whole
    found = sorted(str(path.relative_to(directory)) for path in Path(directory).rglob("*"))
    assert found == ["first", "in", "in/second one"]


@pytest.mark.parametrize("name", ["../outside", "/outside", ""])
def test_nothing_is_placed_outside(host: HostAccess, name: str) -> None:
    with pytest.raises(InfrastructureError, match="is no place below a directory"):
        host.place({"inside": b"", name: b""}, PurePosixPath(host.facts().work_directory, "refused"))
    assert not Path(host.facts().work_directory, "refused").exists()


def test_what_cannot_be_placed_is_told_without_the_name_of_the_host(host: HostAccess, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match="file/below cannot be written: ") as caught:
        host.place({"x": b""}, PurePosixPath(tmp_path, "file", "below"))
    assert NAME not in str(caught.value)


def test_slots_are_for_us_to_choose_but_for_nodes(host: HostAccess) -> None:
    assert host.slots() == (1 if ONLY_RAY else None)


@pytest.mark.engine
def test_a_check_is_the_same_table_for_all(host: HostAccess, cpu_image: BuiltImage) -> None:
    wanted = WantedImage(cpu_image, Demands("2026-10"))
    report = host.check(Requirements({"cpu": wanted}, {"cpu": wanted.demands}), LIMIT_S)
    assert report.is_usable, report.findings
    assert list(report.findings) == list(Check)
    ways = {"LocalHost": "here", "FakeHost": "here", "SshHost": "ok", "RayHost": "ray"}
    assert report.findings[Check.SSH].shown == ways[type(host).__name__]
    assert report.findings[Check.ENGINE].level is Level.OK
    assert report.findings[Check.IMAGES].shown == "1/1"
    assert report.preflight is not None
    assert report.preflight.host_name == os.uname().nodename
    assert (report.skew is None) == isinstance(host, LocalHost)


def test_all_that_is_read_about_it_is_told(host: HostAccess) -> None:
    found = host.describe(LIMIT_S)
    assert found.read
    assert found.document["hw_id"] == describe_system(SystemRoot())["hw_id"]
    assert found.document.keys() == {"hw_id", "system_id", "fingerprint", "conditions"}


@pytest.mark.engine
def test_an_engine_finds_images_and_lacks_others(host: HostAccess, cpu_image: BuiltImage) -> None:
    wanted = StoredImage("cpu", cpu_image.image_id, None, cpu_image.identity)
    layers = ("sha256:" + "0" * 64,)
    lost = replace(wanted, image_id="sha256:" + "1" * 64, identity=replace(cpu_image.identity, layers=layers))
    with host.engine() as engine:
        if isinstance(engine, FakeEngine):
            engine.send(cpu_image, print)
        found = engine.look(wanted).found
        assert found is not None
        assert found.layers == cpu_image.layers
        looked = engine.look(lost)
        assert looked.found is None
        assert looked.nearest is not None
        with pytest.raises(InfrastructureError):
            engine.pull(lost)


@pytest.mark.engine
def test_an_engine_that_has_an_image_is_sent_nothing(host: HostAccess, cpu_image: BuiltImage) -> None:
    if ONLY_RAY:
        pytest.skip("a node is sent all of it: test_existing_cluster_images.py")
    with host.engine() as engine:
        assert engine.send(cpu_image, print).layers == cpu_image.layers


@pytest.mark.engine
def test_containers_of_a_campaign_are_removed_and_no_others(host: HostAccess, cpu_image: BuiltImage) -> None:
    campaign, other = f"conformance-{os.getpid()}", f"conformance-other-{os.getpid()}"
    with closing(connect()) as client, host.engine() as engine:
        made = [
            client.containers.create(cpu_image.image_id, ["true"], labels={LABEL: label}) for label in (campaign, other)
        ]
        if isinstance(engine, FakeEngine):
            engine.containers |= {campaign: [str(made[0].name)], other: [str(made[1].name)]}
        try:
            assert engine.remove_containers(campaign) == [made[0].name]
            assert engine.remove_containers(campaign) == []
        finally:
            for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
                if container.labels[LABEL] in (campaign, other):
                    container.remove(force=True)


@pytest.mark.engine
def test_containers_see_the_directories_of_the_host(host: HostAccess, cpu_image: BuiltImage) -> None:
    with host.engine() as engine:
        image = engine.send(cpu_image, print) if isinstance(engine, FakeEngine) else cpu_image.identity
        assert engine.sharing_problem(f"{host.facts().work_directory}/shared", image) is None
        with pytest.raises(InfrastructureError, match="^its engine refused: "):
            engine.sharing_problem(host.facts().work_directory, replace(image, image_id="sha256:" + "1" * 64))
    assert list(Path(host.facts().work_directory).glob(".shared-*")) == []


@pytest.mark.cluster
@pytest.mark.skipif(ONLY_RAY, reason="this is that process")
def test_the_same_holds_for_a_node_of_ray() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__],
        cwd=PROJECT,
        env={**environment, "TAXMETER_CONFORMANCE": "ray"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
