"""Inventories: which setting counts, which hosts a limit leaves, the schema for editors, and what is wrong in one.

A mistake is one line with file, line, key and the fix, and no secret is ever repeated.
"""

import json
import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

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
from tests.refusals import refusal, replaced

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdRrLCEn7RgVU/YrTkY3kozl+32/KIemnbbwB+QCT75"
LAB = f"""\
version: 1
defaults: {{user: bench, reserved_cores: 1, labels: {{site: here, rack: none}}, expect: {{driver: ">=535"}}}}
groups:
  ampere:
    {{hosts: [a3090-01, "a100-*"], labels: {{generation: ampere, rack: a}}, user: ampere, expect: {{gpu_count: 4}}}}
  special: {{hosts: [a100-02], user: special, reserved_cores: 2}}
hosts:
  a3090-01: {{connection: ssh, address: 10.0.0.6}}
  a100-01:
    {{connection: ssh, address: 10.0.0.7, host_key: {KEY} somebody@somewhere, user: own, labels: {{rack: b}},
      state: drain, expect: {{gpu_count: 8, driver: null}}}}
  a100-02: {{connection: ssh, ssh_alias: gateway}}
  here: {{connection: local, engine: docker, user: null}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Inventory:
    return loaded(tmp_path, LAB)


def loaded(tmp_path: Path, text: str) -> Inventory:
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    return load_inventory(path)


def test_the_host_wins_over_groups_and_these_over_the_defaults(lab: Inventory) -> None:
    assert lab.groups == {"ampere": ("a3090-01", "a100-01", "a100-02"), "special": ("a100-02",)}
    assert [groups_of(name, lab) for name in ("a100-02", "a100-01", "here")] == [["ampere", "special"], ["ampere"], []]
    group, own, alias, here = lab.hosts.values()
    assert (group.user, group.state, group.executor) == ("ampere", HostState.ACTIVE, ExecutorChoice.AUTO)
    assert (own.user, own.state) == ("own", HostState.DRAIN)
    assert [host.reserved_cores for host in lab.hosts.values()] == [1, 1, 2, 1]
    for host, rack, count, driver in ((own, "b", 8, None), (group, "a", 4, ">=535")):
        assert host.labels == {"site": "here", "rack": rack, "generation": "ampere"}, "labels merge by key"
        assert (host.expect.gpu_count, host.expect.driver) == (count, driver), "and expectations"
    # an alias and this machine inherit nothing about the way to them
    assert (alias.ssh_alias, alias.user) == ("gateway", None)
    assert (here.connection, here.user, here.engine) == (Connection.LOCAL, None, None)


OVER_GATE = """\
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
    lab = loaded(tmp_path, OVER_GATE)
    jumps = {name: host.jump for name, host in lab.hosts.items()}
    assert jumps == {"edge": None, "gate": "edge", "a100-01": "gate", "a100-02": None}
    assert "jump" not in lab.origins["edge"]
    assert lab.origins["gate"]["jump"].level == "defaults"


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
    settings = {"connection": "ssh", **({} if key == "ssh_alias" else {"address": "h"}), key: value}
    document = json.dumps({"version": 1, "hosts": {"h1": settings}})
    assert getattr(loaded(tmp_path, document).hosts["h1"], key) == value


def test_a_host_key_is_kept_without_its_comment(lab: Inventory) -> None:
    assert lab.hosts["a100-01"].host_key == KEY
    assert fingerprint_of(KEY) == "SHA256:YlAR6gawrCkPENakVQJoDNsxnNlVTjKeB3S2dMCIUiw"


def test_ranges_compare_as_many_numbers_as_they_name() -> None:
    for text, inside, outside in (
        (">=535,<581", ["535.129.03", "580.65.06"], ["581.0", "470.82", "unknown"]),
        ("==535", ["535.129.03"], ["536.1"]),
        (">535", ["536"], ["535.129.03"]),
        (">=535.130", ["535.130"], ["535.129.03"]),
        (">=535.0.1", ["535.0.1"], ["535"]),
        (">=20.10.24,!=20.10.25", ["20.10.24+dfsg1"], ["20.10.25"]),
    ):
        assert [version for version in (*inside, *outside) if in_range(version, text)] == inside


def far(name: str, state: HostState = HostState.ACTIVE) -> Host:
    return Host(connection=Connection.SSH, address=f"{name}.lab", state=state)


AMPERE, BIG = ("a3090-01", "a100-01", "a100-02"), ("a100-01", "a100-02", "v100-01")
INVENTORY = Inventory(hosts={name: far(name) for name in (*AMPERE, "v100-01")}, groups={"ampere": AMPERE, "big": BIG})


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


NOTHING_AT_ALL = ("", " ")
NOTHING_SOMEWHERE = (":", ",", "big::ampere", ":big", "big:", "big,", "!", "&", "big:!", "big: ")


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("hopper", "no host or group is called hopper; known: a100-01, .*ampere, big"),
        ("ampre", "did you mean ampere"),
        ("ampere:!ampere", "leaves no host"),
        *((limit, "--limit '.*it is empty") for limit in NOTHING_AT_ALL),
        *((limit, "--limit '.*one of them is empty") for limit in NOTHING_SOMEWHERE),
    ],
)
def test_a_limit_that_leaves_or_names_nobody_is_refused(limit: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        select_hosts(INVENTORY, limit)
    assert caught.value.exit_code == ExitCode.USAGE


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


GOOD = f"""\
version: 1
defaults: {{user: bench}}
groups:
  one: {{hosts: [h1], labels: {{x: y}}}}
hosts:
  h1:
    connection: ssh
    address: 10.0.0.7
    host_key: {KEY}
    expect: {{driver: ">=535"}}
  h2:
    connection: ssh
    ssh_alias: second
"""
LOCAL = "connection: local"


def error_of(path: Path, text: str) -> str:
    return refusal(load_inventory, path, text)


def test_the_inventory_that_the_others_break_is_good_and_a_host_may_be_called_like_a_secret(tmp_path: Path) -> None:
    assert set(loaded(tmp_path, replaced(GOOD, "h2:", "token-ring:")).hosts) == {"h1", "token-ring"}


MISTAKES = {
    "user: bench": ("usr: bench", "identity_file: ~nosuchuser/key"),
    "hosts: [h1]": ("hosts: [h3]",),
    "one: {hosts": ("h2: {hosts", "all: {hosts", "One: {hosts"),
    "{x: y}": ("{gpu_model: A100}",),
    "address: 10.0.0.7": ("address: bench@h1", "address: -oProxyCommand=x", "port: 1"),
    "connection: ssh\n    address": ("address",),
    "connection: ssh\n    ssh_alias: second": ("connection: local\n    port: 22", "connection: local\n    python: /p"),
    "connection: ssh": ("connection: telnet",),
    "CT75": ("CT7",),
    "ssh-ed25519 A": ("A",),
    'driver: ">=535"': ("driver: 535.x", "drivers: x"),
    "version: 1": ("version: 2",),
    "  h1:": ("  H_1:",),
    "  h2:\n": (
        "  a: {connection: local}\n  b: {connection: local}\n  h2:\n",
        "".join(f"  {a}: {{connection: ssh, address: h, jump: {b}}}\n" for a, b in ("ab", "bc", "ca")) + "  h2:\n",
    ),
    "ssh_alias: second": (
        *("ssh_alias: -x", "address: '[::1]'", "address: '[::1]:22'", "address: h2:22", "address: 10.0.0.7"),
        *(f"ssh_alias: x\n    {more}" for more in ("address: y", "port: 22", "python: bin/python")),
        *(f"ssh_alias: x\n    python: /p\n    {more}: docker" for more in ("engine", "executor")),
        "ssh_alias: x\n    python: /p\n    exclusive: gpu",
        *(f"address: h\n    jump: {jump}" for jump in ("a b", "h:99999", "h2")),
        *(f"address: h\n    {more}" for more in ("port: 65536", "state: off", "executor: podman", "work_directory: x")),
        *(f"address: h\n    {more}" for more in ("identity_file: ~nosuchuser/key", "engine: tcp://h:1")),
        *(f"address: h\n    {secret}: hunter2" for secret in ("password", "sudo_password")),
        "address: h\n    labels: {api-key: hunter2}",
        "address: h\n    labels: {x: '-----BEGIN OPENSSH PRIVATE KEY----- hunter2'}",
        "address: h\n    identity_file: |\n      -----BEGIN RSA PRIVATE KEY-----\n      hunter2",
        "address: h\n    engine: tcp://me:hunter2@host:2375",
    ),
}


def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    pairs = [(old, new) for old, mistakes in MISTAKES.items() for new in mistakes]
    told = {new: error_of(tmp_path / "hosts.yaml", replaced(GOOD, old, new)) for old, new in pairs}
    assert told == snapshot
    assert not any("hunter2" in line for line in told.values()), "secrets are not repeated"


INERT = r"of A-Z, a-z, 0-9, '_' and, but not first, '\.'"
OF_A_SHELL = (
    *("$(touch${IFS}/tmp/x)", "`id`", "a;id", "a|id", "a&id", "a<b", "a>b", "{a,b}", "(id)", "a*", "~root", "a!b"),
)
OF_SSH = ("%r", "${HOME}", "a$", "-oProxyCommand=id", "#a", "a\nProxyCommand id", "a b", 'a"b', "a'b", "a\\")
UNSAFE = (*OF_A_SHELL, *OF_SSH)
NAMES = (*UNSAFE, "a%h")
JUMPS = (*NAMES, "a,b", "LAB\\jdoe")
REFUSED = {
    "user": (f":2: defaults.user: expected a user's name {INERT}", (*NAMES, "a\\\\b", "a\\b\\c")),
    "jump": (f":14: hosts.h2.jump: expected .*, {INERT}", (*JUMPS, *(f"{jump}@127.0.0.1:1" for jump in JUMPS))),
    "ssh_alias": (f":13: hosts.h2.ssh_alias: expected .*, {INERT}", (*NAMES, "me@second", "ssh://second", "a,b")),
    "address": (
        ":13: hosts.h2.address: expected a name or an IP address alone",
        (*UNSAFE, "a%", "a%%h", "fe80::1%a%h"),
    ),
    "identity_file": (":14: hosts.h2.identity_file: expected ", ("/k\\", '/k"', "/k\nProxyCommand id", "/k\0", "/k\r")),
    "engine": (
        ":14: hosts.h2.engine: expected ",
        tuple(f"unix:///run/{part}" for part in ("${HOME}/s", "%u/s", "a:22", "a\\s")),
    ),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, (_, values) in REFUSED.items() for value in values])
def test_what_ssh_is_told_means_nothing_to_a_shell_or_to_ssh(tmp_path: Path, key: str, value: str) -> None:
    setting = f"{key}: {json.dumps(value)}"
    if key == "user":
        text = GOOD.replace("user: bench", setting)
    else:
        before = "" if key in ("ssh_alias", "address") else "address: h\n    "
        text = GOOD.replace("ssh_alias: second", before + setting)
    assert re.match(REFUSED[key][0], error_of(tmp_path / "h.yaml", text))


def test_an_inherited_jump_that_leads_in_a_circle_is_named_where_it_stands(tmp_path: Path) -> None:
    text = "version: 1\ndefaults: {jump: gate}\nhosts:\n" + "".join(
        f"  {name}: {{connection: ssh, address: {name}.lab{jump}}}\n"
        for name, jump in (("far", ""), ("gate", ", jump: edge"), ("edge", ""))
    )
    message = error_of(tmp_path / "h.yaml", text)
    assert message.startswith(":2: defaults.jump: these jumps lead in a circle: gate → edge → gate; ")
    message = error_of(tmp_path / "h.yaml", text.replace("connection: ssh, address: gate.lab, jump: edge", LOCAL))
    assert message.startswith(":2: defaults.jump: gate is this machine")
