"""What ssh is told: a configuration of ours, in which the user's own has a say only for hosts that name an alias."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config import Connection, Host, local_path

BY_ADDRESS = "by-address.conf"
BY_ALIAS = "by-alias.conf"
KNOWN_HOSTS = "known_hosts"

# For every connection, also those of jump hosts. The first value that ssh reads counts, so the user's cannot undo them.
_ALWAYS = {
    # never ask, never trust what is not known, never change the user's files
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "UpdateHostKeys": "no",
    # a connection that says nothing for 15 s is dead
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    # a shared connection would outlive us
    "ControlMaster": "no",
    "ControlPath": "none",
    # the host is given nothing of this machine
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "LogLevel": "ERROR",
}


@dataclass(frozen=True)
class Route:
    """How a host is named to ssh."""

    configuration: Path
    target: str


def route(name: str, host: Host, directory: Path) -> Route:
    """How to call ssh for a host whose configuration was written into `directory`."""
    if host.ssh_alias is not None:
        return Route(directory / BY_ALIAS, host.ssh_alias)
    return Route(directory / BY_ADDRESS, name)


def files(hosts: Mapping[str, Host], directory: Path, user: Path) -> dict[str, str]:
    """The texts of the files that ssh reads, by name.

    Args:
        hosts: of an inventory; those that are this machine do not count.
        directory: where the files are to be, readable by nobody else.
        user: the user's own directory of SSH: `config` and `known_hosts` are in it.
    """
    far = {name: host for name, host in hosts.items() if host.connection is Connection.SSH}
    by_address = [
        _block(name, _by_address(name, host, far, directory)) for name, host in far.items() if host.ssh_alias is None
    ]
    by_alias = [
        _block(host.ssh_alias, _pinned(name, directory))
        for name, host in far.items()
        if host.ssh_alias is not None and host.host_key is not None
    ]
    include = f"  Include {_quoted(user / 'config')}\n  Include /etc/ssh/ssh_config\n"
    others = {"UserKnownHostsFile": f"{_quoted(user / 'known_hosts')} {_quoted(user / 'known_hosts2')}"}
    return {
        BY_ADDRESS: "".join([*by_address, _block("*", _ALWAYS | others)]),
        BY_ALIAS: "".join([*by_alias, _block("*", _ALWAYS), include]),
        KNOWN_HOSTS: "".join(f"{name} {host.host_key}\n" for name, host in far.items() if host.host_key is not None),
    }


def _by_address(name: str, host: Host, hosts: Mapping[str, Host], directory: Path) -> dict[str, str]:
    assert host.address is not None
    settings = {"HostName": host.address.replace("%", "%%")}
    if host.port is not None:
        settings["Port"] = str(host.port)
    if host.user is not None:
        settings["User"] = host.user
    if host.identity_file is not None:
        settings |= {"IdentityFile": _quoted(local_path(host.identity_file)), "IdentitiesOnly": "yes"}
    if host.jump is not None:
        settings |= _jump(host.jump, hosts, directory)
    return settings | (_pinned(name, directory) if host.host_key is not None else {})


def _jump(jump: str, hosts: Mapping[str, Host], directory: Path) -> dict[str, str]:
    if jump not in hosts:
        return {"ProxyJump": jump}
    over = route(jump, hosts[jump], directory)
    # The two configurations cannot name each other's hosts, so the jump is a command of its own.
    path = str(over.configuration).replace("%", "%%")
    return {"ProxyCommand": f"ssh -F {shlex.quote(path)} -T -W '[%h]:%p' -- {shlex.quote(over.target)}"}


def _pinned(name: str, directory: Path) -> dict[str, str]:
    return {
        "HostKeyAlias": name,
        "UserKnownHostsFile": _quoted(directory / KNOWN_HOSTS),
        "GlobalKnownHostsFile": "/dev/null",
    }


def _block(pattern: str, settings: Mapping[str, str]) -> str:
    return f"Host {pattern}\n" + "".join(f"  {key} {value}\n" for key, value in settings.items())


def _quoted(path: Path) -> str:
    """A path as a configuration takes it: a blank would end a value, and a `%` begin a placeholder."""
    return '"' + str(path).replace("%", "%%") + '"'
