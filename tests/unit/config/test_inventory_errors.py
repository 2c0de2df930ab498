"""What is wrong in an inventory is one line with file, line, key and the fix, and no secret is ever repeated."""

import json
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from orchestrator.config import load_inventory
from tests.refusals import refusal, replaced

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdRrLCEn7RgVU/YrTkY3kozl+32/KIemnbbwB+QCT75"
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


def test_the_inventory_that_the_others_break_is_good(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(GOOD)
    assert set(load_inventory(path).hosts) == {"h1", "h2"}


MISTAKES = (
    ("user: bench", "usr: bench"),
    ("hosts: [h1]", "hosts: [h3]"),
    ("one: {hosts", "h2: {hosts"),
    ("one: {hosts", "all: {hosts"),
    ("one: {hosts", "One: {hosts"),
    ("address: 10.0.0.7", "address: bench@h1"),
    ("address: 10.0.0.7", "address: -oProxyCommand=x"),
    ("ssh_alias: second", "ssh_alias: -x"),
    ("address: 10.0.0.7", "port: 1"),
    ("ssh_alias: second", "ssh_alias: x\n    address: y"),
    ("ssh_alias: second", "ssh_alias: x\n    port: 22"),
    ("connection: ssh\n    address", "address"),
    ("connection: ssh\n    ssh_alias: second", "connection: local\n    port: 22"),
    ("CT75", "CT7"),
    ("ssh-ed25519 A", "A"),
    ('driver: ">=535"', "driver: 535.x"),
    ('driver: ">=535"', "drivers: x"),
    ("ssh_alias: second", "ssh_alias: x\n    python: bin/python"),
    ("ssh_alias: second", "ssh_alias: x\n    python: /p\n    engine: docker"),
    ("ssh_alias: second", "ssh_alias: x\n    python: /p\n    executor: docker"),
    ("ssh_alias: second", "ssh_alias: x\n    python: /p\n    exclusive: gpu"),
    ("connection: ssh\n    ssh_alias: second", "connection: local\n    python: /p"),
    ("ssh_alias: second", "address: h\n    port: 65536"),
    ("ssh_alias: second", "address: h\n    jump: a b"),
    ("ssh_alias: second", "address: h\n    jump: h:99999"),
    ("ssh_alias: second", "address: h\n    jump: h2"),
    ("ssh_alias: second", "address: '[::1]'"),
    ("ssh_alias: second", "address: '[::1]:22'"),
    ("ssh_alias: second", "address: h2:22"),
    ("ssh_alias: second", "address: h\n    identity_file: ~nosuchuser/key"),
    ("user: bench", "identity_file: ~nosuchuser/key"),
    ("ssh_alias: second", "address: h\n    engine: tcp://h:1"),
    ("ssh_alias: second", "address: h\n    work_directory: x"),
    ("ssh_alias: second", "address: 10.0.0.7"),
    ("ssh_alias: second", "address: h\n    state: off"),
    ("{x: y}", "{gpu_model: A100}"),
    ("connection: ssh", "connection: telnet"),
    ("  h1:", "  H_1:"),
    ("ssh_alias: second", "address: h\n    executor: podman"),
    ("version: 1", "version: 2"),
    ("  h2:\n", "  a: {connection: local}\n  b: {connection: local}\n  h2:\n"),
    (
        "  h2:\n",
        "".join(f"  {a}: {{connection: ssh, address: h, jump: {b}}}\n" for a, b in ("ab", "bc", "ca")) + "  h2:\n",
    ),
    ("ssh_alias: second", "address: h\n    password: hunter2"),
    ("ssh_alias: second", "address: h\n    sudo_password: hunter2"),
    ("ssh_alias: second", "address: h\n    labels: {api-key: hunter2}"),
    ("ssh_alias: second", "address: h\n    labels: {x: '-----BEGIN OPENSSH PRIVATE KEY----- hunter2'}"),
    ("ssh_alias: second", "address: h\n    identity_file: |\n      -----BEGIN RSA PRIVATE KEY-----\n      hunter2"),
    ("ssh_alias: second", "address: h\n    engine: tcp://me:hunter2@host:2375"),
)


def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    told = {new: error_of(tmp_path / "hosts.yaml", replaced(GOOD, old, new)) for old, new in MISTAKES}
    assert told == snapshot
    assert not any("hunter2" in line for line in told.values()), "secrets are not repeated"


INERT = "of A-Z, a-z, 0-9, '_' and, but not first, '.'"
OF_A_SHELL = (
    *("$(touch${IFS}/tmp/x)", "`id`", "a;id", "a|id", "a&id", "a<b", "a>b", "{a,b}", "(id)", "a*", "~root", "a!b"),
)
OF_SSH = ("%r", "${HOME}", "a$", "-oProxyCommand=id", "#a", "a\nProxyCommand id", "a b", 'a"b', "a'b", "a\\")
UNSAFE = (*OF_A_SHELL, *OF_SSH)
NAMES = (*UNSAFE, "a%h")
JUMPS = (*NAMES, "a,b", "LAB\\jdoe")
REFUSED = {
    "user": (f":2: defaults.user: expected a user's name {INERT}", [*NAMES, "a\\\\b", "a\\b\\c"]),
    "jump": (
        f":14: hosts.h2.jump: expected [user@]host[:port] or the name of another host, {INERT}",
        [*JUMPS, *(f"{jump}@127.0.0.1:1" for jump in JUMPS)],
    ),
    "ssh_alias": (
        f":13: hosts.h2.ssh_alias: expected a Host of your SSH configuration, {INERT}",
        [*NAMES, "me@second", "ssh://second", "a,b"],
    ),
    "address": (
        ":13: hosts.h2.address: expected a name or an IP address alone",
        [*UNSAFE, "a%", "a%%h", "fe80::1%a%h"],
    ),
    "identity_file": (":14: hosts.h2.identity_file: expected ", ["/k\\", '/k"', "/k\nProxyCommand id", "/k\0", "/k\r"]),
    "engine": (
        ":14: hosts.h2.engine: expected ",
        [f"unix:///run/{part}" for part in ("${HOME}/s", "%u/s", "a:22", "a\\s")],
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
    assert REFUSED[key][0] in error_of(tmp_path / "h.yaml", text)


def test_an_inherited_jump_that_leads_in_a_circle_is_named_where_it_stands(tmp_path: Path) -> None:
    text = "version: 1\ndefaults: {jump: gate}\nhosts:\n" + "".join(
        f"  {name}: {{connection: ssh, address: {name}.lab{jump}}}\n"
        for name, jump in (("far", ""), ("gate", ", jump: edge"), ("edge", ""))
    )
    message = error_of(tmp_path / "h.yaml", text)
    assert message == (
        ":2: defaults.jump: these jumps lead in a circle: gate → edge → gate; write `jump: null` at the host that is "
        "reached without one"
    )
    message = error_of(tmp_path / "h.yaml", text.replace("connection: ssh, address: gate.lab, jump: edge", LOCAL))
    assert message == ":2: defaults.jump: gate is this machine, so there is nothing to jump over"


def test_a_host_may_be_called_like_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text("version: 1\nhosts:\n  token-ring: {connection: ssh, address: h}\n")
    assert list(load_inventory(path).hosts) == ["token-ring"]
