"""Why a host was not reached: what ssh said, as one line that says what to do."""

import re
from enum import Enum

from orchestrator.config import Host, fingerprint_of
from orchestrator.errors import InfrastructureError


class HostConnectionError(InfrastructureError):
    """A host was not reached. The message is one line, names the host, and says what to do."""

    def __init__(self, host: str, problem: str) -> None:
        super().__init__(f"{host}: {problem}")
        self.problem = problem
        """Without the name of the host."""


class _Kind(Enum):
    """What ssh complains of, and by which words.

    In this order: where a jump fails, the connection through it fails too, and is complained about last.
    """

    WRONG_HOST_KEY = r"host key for (?P<name>\S+) has changed|REMOTE HOST IDENTIFICATION HAS CHANGED"
    UNKNOWN_HOST_KEY = r"No (?P<type>\S+) host key is known for (?P<name>\S+)|Host key verification failed"
    CONFIGURATION = r"Bad configuration option|terminating, \d+ bad configuration|Bad owner or permissions on"
    KEY_FILE = r"Load key \S+: "
    AUTHENTICATION = r"(?:(?P<name>\S+): )?Permission denied|Too many authentication failures"
    FORWARDING = r"administratively prohibited|[Cc]ould not request local forwarding"
    TIMEOUT = r"timed out"
    UNREACHABLE = (
        r"Could not resolve hostname|Connection refused|No route to host|Network is unreachable|stdio forwarding failed"
        r"|Connection (closed|reset) by|kex_exchange_identification|Connection to \S+ closed"
    )
    OTHER = r""


def explain(name: str, host: Host, said: str) -> HostConnectionError:
    """What ssh said on its standard error, understood."""
    kind, match = next((kind, found) for kind in _Kind if (found := re.search(kind.value, said, re.IGNORECASE)))
    about = match.groupdict().get("name")
    line = _line_at(said, match.start() if kind.value else len(said.rstrip()))
    if kind in (_Kind.WRONG_HOST_KEY, _Kind.UNKNOWN_HOST_KEY) and _is_jump(name, host, about):
        problem = _key_of_jump(about or "the jump host", kind)
    elif kind is _Kind.WRONG_HOST_KEY:
        problem = _wrong_key(name, host, said)
    elif kind is _Kind.UNKNOWN_HOST_KEY:
        problem = (
            f"its host key is not known: `taxmeter hosts key {name}` prints the key that it offers; compare the "
            "fingerprint with the host's own and write the key as `host_key:`"
        )
    elif kind is _Kind.AUTHENTICATION:
        problem = _refused(host, about, line)
    elif kind in (_Kind.CONFIGURATION, _Kind.KEY_FILE):
        problem = f"ssh cannot use a file of this machine ({line}); correct it"
    elif kind is _Kind.FORWARDING:
        problem = f"ssh does not forward ({line}): a `LocalForward` of your SSH configuration is in use already"
    elif kind is _Kind.TIMEOUT:
        problem = f"no answer ({line}): is the host up, and does a firewall let port {host.port or 22} through?"
    elif kind is _Kind.UNREACHABLE:
        problem = f"unreachable ({line}){_where_to_look(line, host)}"
    else:
        problem = f"ssh failed: {line or 'it ended without a word'}"
    return HostConnectionError(name, problem)


def reason(error: InfrastructureError) -> str:
    """Why something failed on a host, without its name."""
    return error.problem if isinstance(error, HostConnectionError) else str(error)


def _line_at(said: str, position: int) -> str:
    start = said.rfind("\n", 0, position) + 1
    return " ".join(said[start:].partition("\n")[0].removeprefix("ssh: ").split())


def _is_jump(name: str, host: Host, about: str | None) -> bool:
    own = {name, host.address, host.ssh_alias, f"[{host.address}]:{host.port or 22}"}
    return about is not None and host.jump is not None and about not in own


def _key_of_jump(jump: str, kind: _Kind) -> str:
    what = "has another host key than is known" if kind is _Kind.WRONG_HOST_KEY else "has a host key that is unknown"
    return (
        f"the jump host {jump} {what}: make the jump a host of the inventory, and `taxmeter hosts key` prints the key "
        "that it offers; compare its fingerprint before you trust it"
    )


def _wrong_key(name: str, host: Host, said: str) -> str:
    offered = re.search(r"fingerprint for the (\S+) key sent by the remote host is\s+(SHA256:\S+?)\.?\s", said)
    shown = f" {offered[1]} {offered[2]}" if offered else ""
    if host.host_key is not None:
        known = f"the inventory pins {fingerprint_of(host.host_key)}"
        mend = "update `host_key:`"
    else:
        place = re.search(r"Offending \S+ key in (\S+)", said)
        known = f"your known_hosts has another{f' ({place[1]})' if place else ''}"
        mend = "replace that entry"
    return (
        f"wrong host key: it offers{shown}, but {known}. If the host was set up anew, compare the fingerprint there "
        f"(`taxmeter hosts key {name}` prints the key) and {mend}; else somebody may be in between"
    )


def _refused(host: Host, about: str | None, line: str) -> str:
    who = host.user or (about.partition("@")[0] if about and "@" in about else "you")
    key = f"the public half of {host.identity_file}" if host.identity_file else "your public key"
    if "Too many" in line:
        return f"it refuses {who}: ssh offered too many keys; name the right one as `identity_file:`"
    return (
        f"it refuses {who} ({line.rpartition(': ')[2]}): add {key} to ~{'' if who == 'you' else who}/.ssh/"
        "authorized_keys there (ssh-copy-id); a key with a passphrase must be in your ssh-agent"
    )


def _where_to_look(line: str, host: Host) -> str:
    if "resolve" in line:
        key = "ssh_alias" if host.ssh_alias is not None else "address"
        return f": correct `{key}:`" + (" or `jump:`" if host.jump is not None else "")
    if "refused" in line:
        return f": nothing listens on port {host.port or 22}; is sshd running, is `port:` right?"
    return ": is the host up, is `address:` right?" if host.address is not None else ": is the host up?"
