"""Inventories: which setting counts and where it stands, which hosts a limit leaves, and the schema for editors."""

import json
from pathlib import Path

import pytest

from orchestrator.config import (
    Connection,
    ExecutorChoice,
    Host,
    HostState,
    Inventory,
    active_hosts,
    fingerprint_of,
    groups_of,
    in_range,
    json_schema,
    load_inventory,
    select_hosts,
)
from orchestrator.errors import ConfigurationError, ExitCode, NoUsableHostError, TaxmeterError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdRrLCEn7RgVU/YrTkY3kozl+32/KIemnbbwB+QCT75"
LAB = f"""\
version: 1
defaults:
  user: bench
  reserved_cores: 1
  labels: {{site: here, rack: none}}
  expect: {{driver: ">=535"}}
groups:
  ampere:
    hosts: [a3090-01, "a100-*"]
    labels: {{generation: ampere, rack: a}}
    user: ampere
    expect: {{gpu_count: 4}}
  special:
    hosts: [a100-02]
    user: special
    reserved_cores: 2
hosts:
  a3090-01:
    connection: ssh
    address: 10.0.0.6
  a100-01:
    connection: ssh
    address: 10.0.0.7
    host_key: {KEY} somebody@somewhere
    user: own
    labels: {{rack: b}}
    state: drain
    expect: {{gpu_count: 8, driver: null}}
  a100-02:
    connection: ssh
    ssh_alias: gateway
  here:
    connection: local
    engine: docker
    user: null
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.yaml"
    path.write_text(LAB)
    return path


def test_the_host_wins_over_groups_and_these_over_the_defaults(path: Path) -> None:
    hosts = load_inventory(path).hosts
    assert [hosts[name].user for name in ("a3090-01", "a100-01")] == ["ampere", "own"]
    assert [hosts[name].state for name in ("a3090-01", "a100-01")] == [HostState.ACTIVE, HostState.DRAIN]
    assert [host.reserved_cores for host in hosts.values()] == [1, 1, 2, 1]
    assert hosts["a3090-01"].executor is ExecutorChoice.AUTO


def test_labels_and_expectations_merge_by_key(path: Path) -> None:
    hosts = load_inventory(path).hosts
    for name, rack, count, driver in (("a100-01", "b", 8, None), ("a3090-01", "a", 4, ">=535")):
        assert hosts[name].labels == {"site": "here", "rack": rack, "generation": "ampere"}
        assert (hosts[name].expect.gpu_count, hosts[name].expect.driver) == (count, driver)


def test_an_alias_and_this_machine_inherit_nothing_about_the_way_to_them(path: Path) -> None:
    alias, here = (load_inventory(path).hosts[name] for name in ("a100-02", "here"))
    assert (alias.ssh_alias, alias.user) == ("gateway", None)
    assert (here.connection, here.user, here.engine) == (Connection.LOCAL, None, None)


JUMPS = """\
version: 1
defaults: {jump: edge}
groups:
  lab: {hosts: [gate, "a100-*"], jump: gate}
hosts:
  edge: {connection: ssh, address: edge.lab}
  gate: {connection: ssh, address: gate.lab}
  a100-01: {connection: ssh, address: 10.0.0.7}
  a100-02: {connection: ssh, address: 10.0.0.8, jump: null}
"""


def test_a_host_inherits_no_jump_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(JUMPS)
    loaded = load_inventory(path)
    jumps = {name: host.jump for name, host in loaded.hosts.items()}
    assert jumps == {"edge": None, "gate": "edge", "a100-01": "gate", "a100-02": None}
    assert "jump" not in loaded.origins["edge"]
    assert loaded.origins["gate"]["jump"].level == "defaults"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("user", user) for user in ("bench", "j.doe_2", "c++-ci", "7", "_apt", r"LAB\jdoe")),
        *(("jump", jump) for jump in ("gate", "j.doe@gate.lab:2222", "c++@10.0.0.1", "[::1]:22", "me@[fe80::1]")),
        *(("address", address) for address in ("h", "H_1.lab", "10.0.0.7", "::1", "fe80::1%eth0.4")),
        *(("identity_file", path) for path in ("~/.ssh/id", "/a b/100%/$key", "keys/lab")),
        *(("engine", engine) for engine in ("docker", "podman", "unix:///run/user/1000/podman/podman.sock")),
        *(("ssh_alias", alias) for alias in ("a100", "Lab_2", "gate/a100", "gate+a100", "a100.lab")),
    ],
)
def test_what_ssh_is_told_may_be_all_that_is_usual(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "hosts.yaml"
    settings = {"connection": "ssh", **({} if key == "ssh_alias" else {"address": "h"}), key: value}
    path.write_text(json.dumps({"version": 1, "hosts": {"h1": settings}}))
    assert getattr(load_inventory(path).hosts["h1"], key) == value


def test_groups_hold_the_hosts_that_their_patterns_name(path: Path) -> None:
    groups = load_inventory(path).groups
    assert groups == {"ampere": ("a3090-01", "a100-01", "a100-02"), "special": ("a100-02",)}


def test_each_setting_says_where_it_stands(path: Path) -> None:
    origins = load_inventory(path).origins["a100-01"]
    expected = {
        "user": ("host", 25), "labels.site": ("defaults", 5), "labels.generation": ("group ampere", 10),
        "labels.rack": ("host", 26), "expect.driver": ("host", 28), "reserved_cores": ("defaults", 4),
    }  # fmt: skip
    assert {key: (origins[key].level, origins[key].line) for key in expected} == expected
    assert "port" not in origins


def test_a_host_key_is_kept_without_its_comment(path: Path) -> None:
    key = load_inventory(path).hosts["a100-01"].host_key
    assert key == KEY
    assert fingerprint_of(KEY) == "SHA256:YlAR6gawrCkPENakVQJoDNsxnNlVTjKeB3S2dMCIUiw"


def test_the_committed_inventory_is_this_machine(project: Path) -> None:
    hosts = load_inventory(project / "hostinventory.yaml").hosts
    assert [host.connection for host in hosts.values()] == [Connection.LOCAL]


INSIDE = (
    *(("535.129.03", ">=535,<581"), ("580.65.06", ">=535,<581"), ("535.129.03", "==535")),
    ("20.10.24+dfsg1", ">=20.10.24,!=20.10.25"),
)
OUTSIDE = (
    *(("581.0", ">=535,<581"), ("470.82", ">=535"), ("535.129.03", ">535"), ("535.129.03", ">=535.130")),
    *(("535", ">=535.0.1"), ("unknown", ">=1")),
)


@pytest.mark.parametrize(("version", "text"), [*INSIDE, *OUTSIDE])
def test_ranges_compare_as_many_numbers_as_they_name(version: str, text: str) -> None:
    assert in_range(version, text) is ((version, text) in INSIDE)


def far(name: str, state: HostState = HostState.ACTIVE) -> Host:
    return Host(connection=Connection.SSH, address=f"{name}.lab", state=state)


NAMES = ("a3090-01", "a100-01", "a100-02", "v100-01")
INVENTORY = Inventory(
    hosts={name: far(name) for name in NAMES}, groups={"ampere": NAMES[:3], "big": ("a100-01", "a100-02", "v100-01")}
)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, "a3090-01 a100-01 a100-02 v100-01"),
        ("ampere:!a3090-01", "a100-01 a100-02"),
        ("ampere:&big", "a100-01 a100-02"),
        ("&big:!a100-*", "v100-01"),
        ("all:!ampere", "v100-01"),
        ("v100-01,a3090-*", "a3090-01 v100-01"),
        ("!big", "a3090-01"),
        ("a*", "a3090-01 a100-01 a100-02"),
    ],
)
def test_a_limit_takes_names_patterns_and_groups(limit: str | None, expected: str) -> None:
    assert " ".join(select_hosts(INVENTORY, limit)) == expected


def test_an_unknown_name_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="no host or group is called hopper; known: a100-01, .*ampere, big"):
        select_hosts(INVENTORY, "hopper")
    with pytest.raises(ConfigurationError, match="did you mean ampere"):
        select_hosts(INVENTORY, "ampre")
    with pytest.raises(ConfigurationError, match="leaves no host"):
        select_hosts(INVENTORY, "ampere:!ampere")


def test_of_a_large_lab_an_error_names_as_many_hosts_as_are_read() -> None:
    lab = Inventory(hosts={f"a100-{number:03}": far("a", HostState.DRAIN) for number in range(200)})
    for ask in (
        lambda: select_hosts(lab, "nosuch"),
        lambda: select_hosts(lab, "all:!all"),
        lambda: active_hosts(lab.hosts, lambda _: None),
    ):
        with pytest.raises(TaxmeterError, match=r"and 1\d\d more") as caught:
            ask()
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "limit", ["", " ", ":", ",", "big::ampere", ":big", "big:", "big,", "!", "&", "big:!", "big: "]
)
def test_a_limit_in_which_something_is_empty_is_refused(limit: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        select_hosts(INVENTORY, limit)
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(caught.value) == (
        f"--limit {limit!r}: expected names, groups or patterns joined by ':', such as 'ampere:!a100-07', but "
        f"{'one of them' if limit.strip() else 'it'} is empty; every host is 'all'"
    )


def test_the_groups_of_a_host() -> None:
    assert [groups_of(name, INVENTORY) for name in ("a100-01", "a3090-01")] == [["ampere", "big"], ["ampere"]]


def test_a_draining_host_takes_no_new_trials_and_is_named() -> None:
    said: list[str] = []
    hosts = {"a": far("a"), "b": far("b", HostState.DRAIN)}
    assert list(active_hosts(hosts, said.append)) == ["a"]
    assert said == ["b: its state is drain, so it takes no new trials"]
    with pytest.raises(NoUsableHostError, match="the state of b is drain"):
        active_hosts({"b": hosts["b"]}, said.append)


def test_the_schema_knows_every_key_and_refuses_others() -> None:
    schema = json.loads(json_schema())
    assert schema["required"] == ["version", "hosts"]
    for name in ("Defaults", "Group", "HostEntry", "Expectation"):
        definition = schema["$defs"][name]
        assert definition["additionalProperties"] is False
        assert [key for key, value in definition["properties"].items() if "description" not in value] == []
