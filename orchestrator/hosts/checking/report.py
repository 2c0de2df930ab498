"""What a check found on a host: one finding for each thing looked at."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orchestrator.hosts.checking.clock import Skew
from orchestrator.hosts.checking.engine import EngineReading, WantedImage
from orchestrator.hosts.checking.reading import HostReading
from orchestrator.planning import Demands


class Check(Enum):
    """What is looked at, in the order of the table."""

    SSH = "ssh"
    ENGINE = "engine"
    IMAGES = "images"
    GPU = "gpu"
    DRIVER = "driver"
    DISK = "disk"
    GOVERNOR = "governor"
    GPU_USERS = "gpu users"
    LOAD = "load"
    CLOCK = "clock"
    EXPECT = "expect"
    AGENT = "agent"
    """Of the cluster that is up, if one is."""


class Level(Enum):
    """What a finding means."""

    OK = "ok"
    NONE = "none"
    """There was nothing to look at, or no way to."""
    WARNING = "warning"
    """Trials run, but something may disturb them or is not as it could be."""
    FAILURE = "failure"
    """The host cannot be used until it is mended."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check on one host."""

    level: Level
    shown: str
    """A few characters for a table."""
    problem: str | None = None
    """One line with what to do about it; null if nothing is wrong."""


@dataclass(frozen=True)
class HostReport:
    """All findings of one host."""

    host: str
    is_active: bool
    """Whether it takes new trials."""
    findings: Mapping[Check, Finding]
    reading: HostReading | None = None
    """Null if the host was not reached."""
    engine: EngineReading | None = None
    skew: Skew | None = None

    @property
    def is_usable(self) -> bool:
        """Whether trials can run there, whatever its state."""
        return all(finding.level is not Level.FAILURE for finding in self.findings.values())


@dataclass(frozen=True)
class Requirements:
    """What hosts are compared with."""

    images: Mapping[str, WantedImage]
    """Those that are recorded as built, by environment."""
    demands: Mapping[str, Demands]
    """Of every environment of the catalogue."""
    here: frozenset[str]
    """Environments whose image can be brought from this machine or a registry."""
