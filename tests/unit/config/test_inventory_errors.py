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
)


def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert {new: error_of(tmp_path / "hosts.yaml", replaced(GOOD, old, new)) for old, new in MISTAKES} == snapshot


INERT = "of A-Z, a-z, 0-9, '_' and, but not first, '.'"
OF_A_SHELL = [
    "$(touch${IFS}/tmp/x)",
    "`id`",
    "a;id",
    "a|id",
    "a&id",
    "a<b",
    "a>b",
    "{a,b}",
    "(id)",
    "a*",
    "~root",
    "a!b",
]
OF_SSH = ["a%h", "%r", "${HOME}", "a$", "-oProxyCommand=id", "#a", "a\nProxyCommand id", "a b", 'a"b', "a'b", "a\\"]


@pytest.mark.parametrize("user", [*OF_A_SHELL, *OF_SSH, "a\\\\b", "a\\b\\c"])
def test_a_user_means_nothing_to_a_shell_or_to_ssh(tmp_path: Path, user: str) -> None:
    text = GOOD.replace("user: bench", f"user: {json.dumps(user)}")
    assert f":2: defaults.user: expected a user's name {INERT}" in error_of(tmp_path / "h.yaml", text)


@pytest.mark.parametrize("user", [*OF_A_SHELL, *OF_SSH, "a,b", "LAB\\jdoe"])
@pytest.mark.parametrize("form", ["{}@127.0.0.1:1", "{}"])
def test_a_jump_means_nothing_to_a_shell_or_to_ssh(tmp_path: Path, user: str, form: str) -> None:
    text = GOOD.replace("ssh_alias: second", f"address: h\n    jump: {json.dumps(form.format(user))}")
    message = error_of(tmp_path / "h.yaml", text)
    assert f":14: hosts.h2.jump: expected [user@]host[:port] or the name of another host, {INERT}" in message


@pytest.mark.parametrize("alias", [*OF_A_SHELL, *OF_SSH, "me@second", "ssh://second", "a,b"])
def test_an_alias_means_nothing_to_a_shell_or_to_ssh(tmp_path: Path, alias: str) -> None:
    text = GOOD.replace("ssh_alias: second", f"ssh_alias: {json.dumps(alias)}")
    message = error_of(tmp_path / "h.yaml", text)
    assert f":13: hosts.h2.ssh_alias: expected a Host of your SSH configuration, {INERT}" in message


@pytest.mark.parametrize(
    "address", [*OF_A_SHELL, *(text for text in OF_SSH if text != "a%h"), "a%", "a%%h", "fe80::1%a%h"]
)
def test_an_address_means_nothing_to_a_shell_or_to_ssh(tmp_path: Path, address: str) -> None:
    text = GOOD.replace("ssh_alias: second", f"address: {json.dumps(address)}")
    assert ":13: hosts.h2.address: expected a name or an IP address alone" in error_of(tmp_path / "h.yaml", text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("identity_file", path) for path in ("/k\\", '/k"', "/k\nProxyCommand id", "/k\0", "/k\r")),
        *(("engine", f"unix:///run/{part}") for part in ("${HOME}/s", "%u/s", "a:22", "a\\s")),
    ],
)
def test_a_path_that_ssh_is_told_means_nothing_else_to_it(tmp_path: Path, key: str, value: str) -> None:
    text = GOOD.replace("ssh_alias: second", f"address: h\n    {key}: {json.dumps(value)}")
    assert f":14: hosts.h2.{key}: expected " in error_of(tmp_path / "h.yaml", text)


def test_two_local_hosts_are_one_machine(tmp_path: Path) -> None:
    message = error_of(tmp_path / "h.yaml", f"version: 1\nhosts:\n  a: {{{LOCAL}}}\n  b: {{{LOCAL}}}\n")
    assert message.startswith(":4: hosts.b.connection: a and b are both this machine")


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


def test_jumps_over_other_hosts_may_not_lead_in_a_circle(tmp_path: Path) -> None:
    text = "version: 1\nhosts:\n" + "".join(
        f"  {name}: {{connection: ssh, address: {name}.lab, jump: {jump}}}\n" for name, jump in ("ab", "bc", "ca")
    )
    assert ":3: hosts.a.jump: these jumps lead in a circle: a → b → c → a" in error_of(tmp_path / "h.yaml", text)


@pytest.mark.parametrize(
    ("added", "kind"),
    [
        ("password: hunter2", "a password"),
        ("sudo_password: hunter2", "a sudo_password"),
        ("labels: {api-key: hunter2}", "a api-key"),
        ("labels: {x: '-----BEGIN OPENSSH PRIVATE KEY----- hunter2'}", "a private key"),
        ("identity_file: |\n      -----BEGIN RSA PRIVATE KEY-----\n      hunter2", "a private key"),
        ("engine: tcp://me:hunter2@host:2375", "a password in an address"),
    ],
)
def test_secrets_are_refused_and_not_repeated(tmp_path: Path, added: str, kind: str) -> None:
    message = error_of(tmp_path / "hosts.yaml", GOOD.replace("ssh_alias: second", f"address: h\n    {added}"))
    assert f"{kind} has no place here: the inventory is stored with every campaign" in message
    assert ":14: hosts.h2." in message
    assert "hunter2" not in message


def test_a_host_may_be_called_like_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text("version: 1\nhosts:\n  token-ring: {connection: ssh, address: h}\n")
    assert list(load_inventory(path).hosts) == ["token-ring"]
