"""Removes from texts what says who and where: names, addresses, serial numbers. Pure."""

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

# Each begins where a word does and has an end, so that a long line of a log cannot keep it busy.
_E_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
_USER_AT_HOST: Final = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]{0,63})@([A-Za-z0-9][\w.-]*)")
_CREDENTIALS: Final = re.compile(r"(\w://)[^\s/@]{1,255}@")
_HOME: Final = re.compile(
    r"(?:/[\w.-]{1,255}){0,8}/(?:home|homes|Users)/([^/\s\"'`:,;)\]}>]+)|(?<![\w/])/root(?![\w-])"
)
_PATH: Final = re.compile(r"(?<![\w./\])~-])/(?:[^/\s\"'`:,;)\]}>]+/)+[^/\s\"'`:,;)\]}>]*")
_PUBLIC_ROOTS: Final = {
    *("usr", "opt", "proc", "sys", "etc", "lib", "lib64", "dev", "tmp", "var", "run", "bin", "sbin", "task"),
}
"""Directories whose paths look alike on every machine; `/task` is where a container finds its trials."""
_UUID: Final = re.compile(r"(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_GPU: Final = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{7,}")
_MAC: Final = re.compile(r"(?<![\w:-])(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}(?![\w:-])")
_IPV4: Final = re.compile(r"(?<![\w.])(?<!==)\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?:%\w+)?(?![\w:])")
_SERIAL: Final = re.compile(
    r"\b(serial(?:[ _-]?(?:number|no\.?))?|s/n|asset[ _-]tag)([^\w\[]{1,4})([\w-]{3,})", re.IGNORECASE
)
_ASSIGNED: Final = re.compile(
    r"\b(USER|LOGNAME|USERNAME|SUDO_USER|HOSTNAME|HOST|hostname|user|username|password|passwd|token|secret|api_key)"
    r"(=|: ?)(?!\[)[^\s,;\"']+"
)
_LOCAL_NAME: Final = re.compile(
    r"(?<![\w.-])(?:[A-Za-z0-9][\w-]*\.)+(?:local|lan|internal|intranet|localdomain|home|corp|lab|edu|ac\.[a-z]{2})(?![\w-])"
)
_PROXY: Final = re.compile(r"\b((?:https?|ftp|all|no)_proxy)(=|: ?)(?!\[)[^\s;\"']+", re.IGNORECASE)
_HOST_AND_PORT: Final = re.compile(
    r"\b((?:https?|socks\w{0,2}|tcp|grpc|ftp)://)(?!localhost:)[A-Za-z][\w.-]{0,253}(?=:\d)"
)
_SPOOL: Final = re.compile(
    r"(?<![\w.-])(/tmp|/var/tmp|/dev/shm|/var/(?:lib|spool)/slurm\w*|/run/user)/"
    r"(?!tmp|pip-|torch_|sem\.|nccl|pymp-|taxmeter-|slurmd|slurmctld|\[)([^/\s\"'`:,;)\]}>]+)"
)
"""Where everybody may write, what stands there often begins with the writer's name."""
_HARMLESS: Final = {"0.0.0.0", "127.0.0.1", "255.255.255.255", "::", "::1"}  # noqa: S104 -- addresses that say nothing
_SECRET_KEY: Final = re.compile(
    r"serial|uuid|host_?name|user_?name|^user$|boot_id|machine_id|^mac(_|$)|asset|(^|_)proxy$|(^|_)token$|password|secret",
    re.IGNORECASE,
)
_VERSION_KEY: Final = re.compile(r"version|vbios|firmware|build", re.IGNORECASE)
_REMOVED: Final = "[removed]"
_SHORTEST: Final = 3


@dataclass(frozen=True)
class Scrubber:
    """Replaces known names by their placeholders, and what looks like an address or a serial number by its kind."""

    names: Mapping[str, str]
    """Names of hosts and users, in lower case, to what stands for them."""
    pattern: re.Pattern[str] | None
    campaigns: frozenset[str] = frozenset()
    """Their names; those of their tasks begin with them."""

    @classmethod
    def of(cls, names: Mapping[str, str], campaigns: Iterable[str] = ()) -> "Scrubber":
        """A scrubber that knows these names."""
        lower = {name.lower(): placeholder for name, placeholder in names.items()}
        # A host may be called `a` or `10`: within a text nobody can tell that from a word or a number.
        telling = [name for name in lower if len(name) >= _SHORTEST and not name.isdigit()]
        longest = sorted(telling, key=lambda name: (-len(name), name))
        joined = "|".join(map(re.escape, longest))
        pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{joined})(?![A-Za-z0-9])", re.IGNORECASE) if telling else None
        return cls(lower, pattern, frozenset(campaigns))

    def name(self, text: str) -> str:
        """A name of ours, such as that of a campaign, in which a host or a user may be mentioned."""
        if text.lower() in self.names:
            return self.names[text.lower()]
        return self.pattern.sub(lambda found: self.names[found[0].lower()], text) if self.pattern else text

    def task(self, text: str) -> str:
        """The name of a task, CAMPAIGN-HOST-ENVIRONMENT-rROUND: its host is known by its place, however short it is."""
        ends = [end for end, character in enumerate(text) if character == "-"]
        for start in (end for end in ends if text[:end] in self.campaigns):
            for end in (end for end in reversed(ends) if end > start):
                host = self.names.get(text[start + 1 : end].lower())
                if host is not None:
                    return f"{self.name(text[:start])}-{host}{text[end:]}"
        return self.name(text)

    def text(self, text: str, *, addresses: bool = True) -> str:
        """Free text.

        Args:
            text: any.
            addresses: whether what looks like an IP address is one, and not a version with four numbers.
        """
        if "@" in text:
            text = _CREDENTIALS.sub(r"\1[user]@", text)
            text = _E_MAIL.sub("[e-mail]", text)
            text = _USER_AT_HOST.sub("[user]@[host]", text)
        if "/" in text:
            text = _HOME.sub("[home]", text)
            text = _SPOOL.sub(_nameless, text)
            text = _PATH.sub(_shortened_path, text)
            text = _HOST_AND_PORT.sub(r"\1[host]", text)
        text = _PROXY.sub(rf"\1\2{_REMOVED}", text)
        text = _UUID.sub("[uuid]", text)
        text = _GPU.sub("[uuid]", text)
        text = _MAC.sub("[mac]", text)
        if addresses:
            text = _IPV6.sub(_address, _IPV4.sub(_address, text))
        text = _SERIAL.sub(r"\1\2[serial]", text)
        text = _ASSIGNED.sub(rf"\1\2{_REMOVED}", text)
        return _LOCAL_NAME.sub("[host]", self.name(text))

    def json(self, text: str) -> str:
        """Free text that is JSON when it looks like it: its strings and names are scrubbed, and its form stays."""
        if not text.startswith(("{", "[")):
            return self.text(text)
        try:
            value = json.loads(text)
        except ValueError:
            return self.text(text)
        clean = self.value(value)
        # As it was, byte for byte, if nothing was found.
        return text if clean == value else json.dumps(clean, sort_keys=True, separators=(",", ":"))

    def value(self, value: Any, key: str = "") -> Any:
        """A value of a JSON document.

        Args:
            value: any.
            key: the name that it stands under.
        """
        if isinstance(value, dict):
            return {self.text(name): self.value(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.value(one, key) for one in value]
        if value is None or isinstance(value, bool | float):
            return value
        if _SECRET_KEY.search(key):
            return _REMOVED
        if key == "task_id" and isinstance(value, str):
            return self.task(value)
        return self.text(value, addresses=not _VERSION_KEY.search(key)) if isinstance(value, str) else value


def logins_in(text: str) -> set[tuple[str, str]]:
    """What looks like a user's address on a host, `user@host`; so does the version of a package."""
    return {(match[1], match[2].lower()) for match in _USER_AT_HOST.finditer(text)} if "@" in text else set()


def users_in(text: str) -> set[str]:
    """Names of users that a text gives away by their home directories or environment."""
    found = {match[1] for match in _HOME.finditer(text) if match[1]}
    return found | set(re.findall(r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER)=([\w.-]+)", text))


def hosts_in(text: str) -> set[str]:
    """Names of hosts that a text gives away by its environment or an address of SSH."""
    found = set(re.findall(r"\b(?:HOSTNAME|HOST)=([A-Za-z][\w.-]*)", text))
    return found | set(re.findall(r"\bssh://(?:[^@\s/]*@)?([A-Za-z][\w.-]*)", text))


def structure_of(tree: Any, name: Callable[[str], str], known: Iterable[str]) -> Any:
    """A document without what people wrote into it: known keys, numbers and the shape are left.

    Args:
        tree: a parsed document.
        name: gives the placeholder of a host's name.
        known: keys and values that say nothing about the lab.
    """
    vocabulary = set(known)

    def reduced(value: Any, parent: str) -> Any:
        if isinstance(value, dict):
            return {
                (name(str(key)) if parent == "hosts" else key if key in vocabulary else f"name-{number}"): reduced(
                    one, str(key)
                )
                for number, (key, one) in enumerate(value.items(), start=1)
            }
        if isinstance(value, list):
            return [reduced(one, parent) for one in value]
        if value is None or isinstance(value, bool | int | float) or value in vocabulary:
            return value
        return _REMOVED

    return reduced(tree, "")


def _shortened_path(found: re.Match[str]) -> str:
    """Paths of the distribution stay; of others the name of the file."""
    parts = found[0].split("/")
    if parts[1] in _PUBLIC_ROOTS:
        return found[0]
    return f"[path]/{parts[-1]}" if "." in parts[-1] else "[path]"


def _nameless(found: re.Match[str]) -> str:
    """The end of a name stays, which says what kind of file it is."""
    _, dot, suffix = found[2].rpartition(".")
    return f"{found[1]}/[name]{dot}{suffix if dot else ''}"


def _address(found: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(found[0].partition("%")[0])
    except ValueError:
        return found[0]
    return found[0] if found[0] in _HARMLESS else "[ip]"
