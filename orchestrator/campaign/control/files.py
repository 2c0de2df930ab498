"""The files by which a driver and those outside of it speak with each other.

Each is written whole and then named, so that nobody sees a half, and only its owner can write or read them.
"""

import os
import pickle
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from orchestrator.campaign.control.state import CampaignProgressState, Request
from orchestrator.campaign.preparing.preparation import ReadyHost
from orchestrator.errors import NoUsableHostError
from orchestrator.files import held_at_once, is_locked

_STATE: Final = TypeAdapter(CampaignProgressState)
_REQUEST: Final = TypeAdapter(Request)

_REFUSED: Final = ".refused"


@dataclass(frozen=True)
class ControlFiles:
    """The directory of a project in which its one running campaign is seen and steered."""

    directory: Path

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Makes this process the driver: `is_alive` is true until it leaves, however it ends.

        What was asked of an earlier driver and what was said by it are forgotten.

        Raises:
            NoUsableHostError: another campaign of this project is driven.
        """
        for directory in (self.directory, self._requests, self._offers):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not held_at_once(descriptor):
                running = self.state()
                name = "another campaign" if running is None else f"campaign {running.campaign_id}"
                raise NoUsableHostError(f"{name} of this project is running; `taxmeter sweep status` shows it")
            for old in (*self._requests.iterdir(), *self._offers.iterdir()):
                old.unlink(missing_ok=True)
            self._state.unlink(missing_ok=True)
            yield
        finally:
            os.close(descriptor)

    def publish(self, state: CampaignProgressState) -> None:
        """Says how the campaign is, in place of what was said before. Its driver alone does."""
        self._put(self._state, _STATE.dump_json(state))

    def state(self) -> CampaignProgressState | None:
        """What a driver said last, whether it lives or not; null if none ever did, or one of another version."""
        try:
            return _STATE.validate_json(self._state.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def is_alive(self) -> bool:
        """Whether a driver runs: the kernel knows, across containers and however a driver ends."""
        return is_locked(self._lock)

    def request(self, request: Request) -> None:
        """Asks the driver that runs. Whether one does is for the caller to know; one that comes later is not asked."""
        self._drop(self._requests, ".json", _REQUEST.dump_json(request))

    def take_requests(self) -> list[Request]:
        """What was asked since, oldest first, each once.

        A file that is no request is kept beside, as `*.refused`: a stray one must not end a campaign.
        """
        taken = []
        for path in self._waiting(self._requests, ".json"):
            try:
                taken.append(_REQUEST.validate_json(path.read_bytes()))
                path.unlink()
            except ValidationError:
                path.rename(path.with_name(path.name + _REFUSED))
        return taken

    def offer(self, host: ReadyHost) -> None:
        """Offers the driver a host that is ready and part of its cluster, in place of one that is lost."""
        self._drop(self._offers, ".pickle", pickle.dumps(host))

    def take_offers(self) -> list[ReadyHost]:
        """The hosts offered since, oldest first, each once. A file that somebody else may have written is not read."""
        taken: list[ReadyHost] = []
        for path in self._waiting(self._offers, ".pickle"):
            status = path.lstat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                path.rename(path.with_name(path.name + _REFUSED))
                continue
            taken.append(pickle.loads(path.read_bytes()))  # noqa: S301 - ours, and writable for nobody else
            path.unlink()
        return taken

    def refused(self) -> list[Path]:
        """Files that were there to be taken and could not be."""
        return [path for where in (self._requests, self._offers) for path in sorted(where.glob(f"*{_REFUSED}"))]

    @property
    def _state(self) -> Path:
        return self.directory / "state.json"

    @property
    def _lock(self) -> Path:
        return self.directory / "driver.lock"

    @property
    def _requests(self) -> Path:
        return self.directory / "requests"

    @property
    def _offers(self) -> Path:
        return self.directory / "offers"

    def _waiting(self, directory: Path, suffix: str) -> list[Path]:
        """By age: their names begin with the time. Those that are not whole yet begin with a dot."""
        # Not `glob`: it leaves a directory open where an interrupt comes at the wrong moment.
        found = (path for path in directory.iterdir() if path.name[0].isdigit() and path.suffix == suffix)
        return sorted(found)

    def _drop(self, directory: Path, suffix: str, data: bytes) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # in the order in which they were dropped, also if the clock is set back meanwhile
        last = max((int(path.name.partition("-")[0]) for path in self._waiting(directory, suffix)), default=0)
        self._put(directory / f"{max(last + 1, time.time_ns()):020}-{secrets.token_hex(4)}{suffix}", data)

    def _put(self, path: Path, data: bytes) -> None:
        part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            part.replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                part.unlink()
            raise
