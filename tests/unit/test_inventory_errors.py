"""What is wrong in an inventory is one line with file, line, key and the fix, and no secret is ever repeated."""

import json
from pathlib import Path

import pytest

from orchestrator.config import load_inventory
from orchestrator.errors import ConfigurationError

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
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_inventory(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


def test_the_inventory_that_the_others_break_is_good(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(GOOD)
    assert set(load_inventory(path).hosts) == {"h1", "h2"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("user: bench", "usr: bench", ":2: defaults.usr: unknown key; did you mean user?"),
        ("hosts: [h1]", "hosts: [h3]", ":4: groups.one.hosts.0: no host is called h3; known: h1, h2"),
        ("one: {hosts", "h2: {hosts", ":4: groups.h2: h2 means a host in --limit; call the group something else"),
        ("one: {hosts", "all: {hosts", ":4: groups.all: all means every host in --limit"),
        ("one: {hosts", "One: {hosts", "a group name consists of a-z, 0-9, '-' and '.', not 'One'"),
        ("address: 10.0.0.7", "address: bench@h1", ":8: hosts.h1.address: expected a name or an IP address alone"),
        ("address: 10.0.0.7", "address: -oProxyCommand=x", "expected a name or an IP address alone"),
        ("ssh_alias: second", "ssh_alias: -x", ":13: hosts.h2.ssh_alias: expected a Host of your SSH configuration"),
        ("address: 10.0.0.7", "port: 1", ":6: hosts.h1: connection ssh needs an address; add `address: name-or-ip`"),
        ("ssh_alias: second", "ssh_alias: x\n    address: y", ":13: hosts.h2.ssh_alias: address and ssh_alias exclude"),
        (
            "ssh_alias: second",
            "ssh_alias: x\n    port: 22",
            ":14: hosts.h2.port: with ssh_alias your SSH configuration says the port; remove it, or give an address",
        ),
        (
            "connection: ssh\n    address",
            "address",
            ":6: hosts.h1.connection: this key is missing; add `connection: ssh`",
        ),
        (
            "connection: ssh\n    ssh_alias: second",
            "connection: local\n    port: 22",
            ":13: hosts.h2.port: connection local takes no port; remove it or write `connection: ssh`",
        ),
        ("CT75", "CT7", ":9: hosts.h1.host_key: this is no whole ssh-ed25519 key; copy it again, on one line"),
        ("ssh-ed25519 A", "A", ":9: hosts.h1.host_key: expected the type and the text of a public key"),
        ('driver: ">=535"', "driver: 535.x", "expect.driver: expected versions such as '>=535,<581', not '535.x'"),
        ('driver: ">=535"', "drivers: x", "expect.drivers: unknown key; did you mean driver?"),
        (
            "ssh_alias: second",
            "ssh_alias: x\n    python: bin/python",
            ":14: hosts.h2.python: expected an absolute path",
        ),
        (
            "ssh_alias: second",
            "ssh_alias: x\n    python: /p\n    engine: docker",
            ":15: hosts.h2.engine: with python no engine is used there; keep one of the two",
        ),
        (
            "ssh_alias: second",
            "ssh_alias: x\n    python: /p\n    executor: docker",
            ":15: hosts.h2.executor: with python trials run without containers; write `executor: process`, or remove",
        ),
        (
            "ssh_alias: second",
            "ssh_alias: x\n    python: /p\n    exclusive: gpu",
            ":15: hosts.h2.exclusive: with python one task runs there at a time; write `exclusive: host`, or remove",
        ),
        (
            "connection: ssh\n    ssh_alias: second",
            "connection: local\n    python: /p",
            ":13: hosts.h2.python: connection local takes no python; remove it or write `connection: ssh`",
        ),
        ("ssh_alias: second", "address: h\n    port: 65536", ":14: hosts.h2.port: input should be less than or equal"),
        (
            "ssh_alias: second",
            "address: h\n    jump: a b",
            ":14: hosts.h2.jump: expected [user@]host[:port] or the name",
        ),
        ("ssh_alias: second", "address: h\n    jump: h:99999", "hosts.h2.jump: expected [user@]host[:port]"),
        (
            "ssh_alias: second",
            "address: h\n    jump: h2",
            ":14: hosts.h2.jump: these jumps lead in a circle: h2 → h2; write `jump: null` at the host that is reached",
        ),
        (
            "ssh_alias: second",
            "address: '[::1]'",
            ":13: hosts.h2.address: expected an address without brackets, not '[::1]'; write ::1",
        ),
        ("ssh_alias: second", "address: '[::1]:22'", "; write ::1 (`port` is a key of its own)"),
        (
            "ssh_alias: second",
            "address: h2:22",
            ":13: hosts.h2.address: expected a name or an IP address alone (`user` and `port` are keys of their own)",
        ),
        (
            "ssh_alias: second",
            "address: h\n    identity_file: ~nosuchuser/key",
            ":14: hosts.h2.identity_file: ~nosuchuser is no home directory of this machine; write the whole path",
        ),
        (
            "user: bench",
            "identity_file: ~nosuchuser/key",
            ":2: defaults.identity_file: ~nosuchuser is no home directory of this machine",
        ),
        (
            "ssh_alias: second",
            "address: h\n    engine: tcp://h:1",
            ":14: hosts.h2.engine: the engine of a host that is",
        ),
        ("ssh_alias: second", "address: h\n    work_directory: x", "work_directory: expected an absolute path"),
        ("ssh_alias: second", "address: 10.0.0.7", ":13: hosts.h2.address: h1 and h2 are both the same machine"),
        ("ssh_alias: second", "address: h\n    state: off", "hosts.h2.state: input should be 'active' or 'drain'"),
        ("{x: y}", "{gpu_model: A100}", "groups.one.labels.gpu_model: gpu_model is read off the host, and no label"),
        ("connection: ssh", "connection: telnet", ":7: hosts.h1.connection: input should be 'local', 'ssh' or 'ray'"),
        ("  h1:", "  H_1:", "a host name consists of a-z, 0-9, '-' and '.', not 'H_1'"),
        ("ssh_alias: second", "address: h\n    executor: podman", "input should be 'auto', 'docker' or 'process'"),
        ("version: 1", "version: 2", ":1: version: input should be 1, but it is 2"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert expected in error_of(tmp_path / "hosts.yaml", GOOD.replace(old, new, 1))


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
