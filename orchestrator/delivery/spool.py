"""Parcels on a host's own disk, from before they are sent until they are answered.

A spool belongs to a store, not to a campaign or a process: what a killed agent or driver left is sent by whoever
comes next.
"""

import os
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.delivery.parcels import schema_fingerprint
from orchestrator.errors import InfrastructureError

MAX_SPOOL_BYTES: Final = 2 * 2**30
"""More is not kept on a host: something is wrong that a larger spool would only hide."""

_MAGIC = b"taxmeter-spool-1\n"
_CHECKSUM_BYTES = 4
_FINGERPRINT_BYTES = 32
_SUFFIX = ".parcel"


class SpoolError(InfrastructureError):
    """A parcel could not be kept on the disk."""


class DamagedError(InfrastructureError):
    """A file of the spool is not as it was written, or not of this version; it was put aside."""


@dataclass
class Spool:
    """A directory of parcels, oldest first."""

    directory: Path
    max_bytes: int = MAX_SPOOL_BYTES
    _last: int = field(default=0, init=False)

    def put(self, parcel: bytes) -> Path:
        """Keeps a parcel; when this returns, it survives the end of the process and of the machine.

        Raises:
            SpoolError: the disk or the spool is full, or the directory cannot be written.
        """
        with _as_spool_error(f"cannot keep a record in {self.directory}"):
            self.directory.mkdir(parents=True, exist_ok=True)
            used = sum(path.stat().st_size for path in self.pending())
            if used + len(parcel) > self.max_bytes:
                raise SpoolError(f"the spool {self.directory} is full: {used} bytes wait there to be delivered")
            # Names sort in the order of writing, also if the clock is set back meanwhile.
            self._last = max(self._last + 1, time.time_ns())
            target = self.directory / f"{self._last:020d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
            self._publish(parcel, target)
        return target

    def pending(self) -> list[Path]:
        """What waits to be delivered, oldest first."""
        return sorted(self.directory.glob(f"*{_SUFFIX}"))

    def read(self, path: Path) -> bytes | None:
        """A parcel as it was put; null if it was delivered by someone else meanwhile.

        Raises:
            DamagedError: it is damaged, or of another version of taxmeter; it stands aside now.
            SpoolError: it cannot be read.
        """
        with _as_spool_error(f"cannot read {path}"):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        prefix = len(_MAGIC) + _CHECKSUM_BYTES
        checksum = int.from_bytes(data[len(_MAGIC) : prefix], "big")
        if not data.startswith(_MAGIC) or checksum != zlib.crc32(data[prefix:]):
            raise DamagedError(f"a record that waited to be delivered is damaged; it is kept as {self.set_aside(path)}")
        if data[prefix : prefix + _FINGERPRINT_BYTES] != schema_fingerprint():
            raise DamagedError(
                "a record that waited to be delivered was written by a taxmeter with another schema, which can still "
                f"deliver it; it is kept as {self.set_aside(path)}"
            )
        return data[prefix + _FINGERPRINT_BYTES :]

    def remove(self, path: Path) -> None:
        """Forgets a parcel that is stored. If the removal is lost in a crash, it is sent again and does no harm."""
        with _as_spool_error(f"cannot remove {path}"):
            path.unlink(missing_ok=True)

    def set_aside(self, path: Path) -> Path:
        """Moves a parcel that can never be delivered to where nothing is sent from."""
        target = self.directory / "aside" / path.name
        with _as_spool_error(f"cannot put {path} aside"):
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
        return target

    def remove_if_empty(self) -> None:
        """Removes the directory, unless something waits there or was put aside."""
        with _as_spool_error(f"cannot remove {self.directory}"):
            if self.directory.is_dir() and not any(self.directory.iterdir()):
                self.directory.rmdir()

    def _publish(self, parcel: bytes, target: Path) -> None:
        body = schema_fingerprint() + parcel
        temporary = target.with_suffix(".tmp")
        try:
            with temporary.open("xb") as file:
                file.write(_MAGIC + zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big"))
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _as_spool_error(action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpoolError(f"{action}: {error.strerror or error}") from error
