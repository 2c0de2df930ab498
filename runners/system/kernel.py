"""What is stable about memory, firmware, kernel and virtualisation."""

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from typing import Dict, Optional

from runners.system.reading import (
    exists,
    list_names,
    parse_bytes,
    parse_choice,
    parse_int,
    read_fields,
    read_text,
)

_VULNERABILITIES = "/sys/devices/system/cpu/vulnerabilities"
_DMI = "/sys/class/dmi/id"
_WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
_PRIVATE_KEYS = re.compile(
    r"(BOOT_IMAGE|BOOTIF|cryptdevice|ds|hostname|initrd|ip|nfsroot|rd\.(luks|lvm|md).*|resume|root|rootflags"
    r"|systemd\.(hostname|machine_id|set_credential.*))"
)
_PRIVATE_VALUES = re.compile(
    r"/dev/|(UUID|LABEL)=|[0-9a-f]{8}-[0-9a-f]{4}-|([0-9a-f]{2}[:-]){5}[0-9a-f]{2}", re.IGNORECASE
)


@dataclass(frozen=True)
class Memory:
    total_bytes: Optional[int]
    """What the kernel manages: a little less than what is fitted."""
    swap_total_bytes: Optional[int]
    huge_pages: Optional[int]
    """Huge pages set aside."""
    huge_page_bytes: Optional[int]
    transparent_huge_pages: Optional[str]
    """`always`, `madvise` or `never`."""


@dataclass(frozen=True)
class Machine:
    """What the firmware says of itself; a virtual machine often has none."""

    vendor: Optional[str]
    product: Optional[str]
    board: Optional[str]
    firmware: Optional[str]


@dataclass(frozen=True)
class Kernel:
    release: Optional[str]
    version: Optional[str]
    architecture: Optional[str]
    command_line: Optional[str]
    """Values that name a disk, a host or an address are replaced by `*`."""
    clocksource: Optional[str]
    mitigations: Dict[str, str]
    distribution: Optional[str]
    libc: Optional[str]
    """Of this process."""


@dataclass(frozen=True)
class Virtualisation:
    vm: Optional[bool]
    hypervisor: Optional[str]
    """Its name; `none` outside a virtual machine; null if only its presence is known."""
    container: Optional[str]
    """Kind of the container that this process is in; `none` outside one."""


def probe_memory(root: str = "/") -> Memory:
    fields = read_fields(root, "/proc/meminfo")
    return Memory(
        total_bytes=parse_bytes(fields.get("MemTotal")),
        swap_total_bytes=parse_bytes(fields.get("SwapTotal")),
        huge_pages=parse_int(fields.get("HugePages_Total")),
        huge_page_bytes=parse_bytes(fields.get("Hugepagesize")),
        transparent_huge_pages=parse_choice(read_text(root, "/sys/kernel/mm/transparent_hugepage/enabled")),
    )


def probe_machine(root: str = "/") -> Machine:
    return Machine(
        vendor=read_text(root, _DMI + "/sys_vendor"),
        product=read_text(root, _DMI + "/product_name"),
        board=read_text(root, _DMI + "/board_name"),
        firmware=read_text(root, _DMI + "/bios_version"),
    )


def probe_kernel(root: str = "/") -> Kernel:
    os_release = read_fields(root, "/etc/os-release", "=")
    live = root == "/"
    return Kernel(
        release=read_text(root, "/proc/sys/kernel/osrelease"),
        version=read_text(root, "/proc/sys/kernel/version"),
        architecture=read_text(root, "/proc/sys/kernel/arch") or (platform.machine() if live else None),
        command_line=_public_command_line(read_text(root, "/proc/cmdline")),
        clocksource=read_text(root, "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        mitigations=_mitigations(root),
        distribution=os_release.get("PRETTY_NAME", "").strip("\"'") or None,
        libc=libc_version() if live else None,
    )


def probe_virtualisation(root: str = "/") -> Virtualisation:
    live = root == "/"
    flags = read_fields(root, "/proc/cpuinfo").get("flags")
    flagged = None if flags is None else "hypervisor" in flags.split()
    hypervisor = _detect_virt("--vm") if live else None
    hypervisor = hypervisor or ("none" if flagged is False else _hypervisor_from_files(root))
    return Virtualisation(
        vm=flagged if hypervisor is None else hypervisor != "none",
        hypervisor=hypervisor,
        container=(_detect_virt("--container") if live else None) or _container_from_files(root),
    )


def libc_version() -> Optional[str]:
    """Name and version of this process's C library, such as `glibc 2.36`."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or None
    except (ValueError, OSError):  # another C library does not know the name
        return " ".join(platform.libc_ver()).strip() or None


def _public_command_line(text: Optional[str]) -> Optional[str]:
    if text is None:
        return None
    return " ".join(_public_argument(word) for word in _WORD.findall(text))


def _public_argument(word: str) -> str:
    key, found, value = word.partition("=")
    private = _PRIVATE_KEYS.fullmatch(key.strip('"')) or _PRIVATE_VALUES.search(value)
    return key + "=*" if found and private else word


def _mitigations(root: str) -> Dict[str, str]:
    texts = {
        name: read_text(root, _VULNERABILITIES + "/" + name) for name in list_names(root, _VULNERABILITIES, r"\w+")
    }
    return {name: text for name, text in texts.items() if text is not None}


def _detect_virt(option: str) -> Optional[str]:
    """What systemd's own detection says; None where it is not installed."""
    try:
        done = subprocess.run(
            ["systemd-detect-virt", option], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("ascii", "replace").strip() or None


def _hypervisor_from_files(root: str) -> Optional[str]:
    known = read_text(root, "/sys/hypervisor/type")
    described = " ".join(read_text(root, _DMI + "/" + name) or "" for name in ("sys_vendor", "product_name"))
    names = {"QEMU": "qemu", "KVM": "kvm", "VMware": "vmware", "VirtualBox": "oracle", "Virtual Machine": "microsoft"}
    return known or next((name for word, name in names.items() if word in described), None)


def _container_from_files(root: str) -> Optional[str]:
    if exists(root, "/.dockerenv"):
        return "docker"
    if exists(root, "/run/.containerenv"):
        return "podman"
    declared = read_text(root, "/run/systemd/container")
    if declared is not None:
        return declared
    groups = read_text(root, "/proc/1/cgroup")
    kinds = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc", "containerd": "containerd"}
    found = next((kind for word, kind in kinds.items() if word in (groups or "")), None)
    return found if found is not None or groups is None else "none"
