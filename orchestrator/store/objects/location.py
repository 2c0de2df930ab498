"""A place in an object store, and what its errors mean for a person. Credentials come from the environment alone."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from orchestrator.errors import ConfigurationError, StoreError

_REFUSED = re.compile(
    r"ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|EXPIRED_TOKEN|UNRECOGNIZED_CLIENT"
    r"|MISSING_AUTHENTICATION_TOKEN|INVALID_SIGNATURE|HTTP status 40[013]"
)


@dataclass(frozen=True)
class Location:
    """A prefix of an object store, or a directory."""

    url: str
    """As it was given; it holds no credentials."""
    filesystem: pafs.FileSystem
    prefix: str
    """For `filesystem`; the first component is the bucket."""

    @classmethod
    def of(cls, url: str) -> Self:
        """Understands a URL; asks no server.

        Args:
            url: as Arrow understands it: `s3://BUCKET/PREFIX?endpoint_override=HOST:PORT&scheme=http&region=NAME`,
                `gs://BUCKET/PREFIX`, `file:///DIRECTORY`.

        Raises:
            ConfigurationError: it is no such URL, or has credentials in it.
        """
        try:
            parts = urlsplit(url)
            has_credentials = "@" in parts.netloc
        except ValueError:
            raise ConfigurationError(
                "a URL of an object store that cannot be understood; see results/README.md"
            ) from None
        if has_credentials:
            # Whoever types one sees it again in the shell's history, in lists of processes and in logs.
            raise ConfigurationError(
                f"{parts.scheme}://…@{parts.netloc.rpartition('@')[2]}: take the credentials out of the URL and set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if not is_url(url):
            raise ConfigurationError(
                f"{url} is no URL; write {Path(url).absolute().as_uri()} for a directory, or s3://BUCKET/PREFIX"
            )
        try:
            filesystem, path = pafs.FileSystem.from_uri(_with_single_put(url) if parts.scheme == "s3" else url)
        except (pa.ArrowException, OSError) as error:
            raise ConfigurationError(
                f"{url}: {first_line(error)}; expected s3://BUCKET/PREFIX?endpoint_override=HOST:PORT&region=NAME, "
                "gs://BUCKET/PREFIX or file:///DIRECTORY"
            ) from error
        if not path.strip("/"):
            raise ConfigurationError(f"{url} names no bucket; expected {parts.scheme}://BUCKET/PREFIX")
        return cls(url, filesystem, path.rstrip("/"))

    @property
    def is_a_directory(self) -> bool:
        """Whether this is a real file system, which has directories and renames."""
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    def path(self, key: str) -> str:
        """The path of a key, for `filesystem`."""
        return f"{self.prefix}/{key}"

    def read(self, key: str, most: int | None = None) -> bytes | None:
        """The content of an object, or the first bytes of it; null if there is none.

        Raises:
            ConfigurationError: the service refuses.
            StoreError: it does not answer.
        """
        with self.errors(f"read {key}"):
            try:
                with self.filesystem.open_input_stream(self.path(key)) as stream:
                    return bytes(stream.read(most))
            except FileNotFoundError:
                return None

    @contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Turns an error of the service into one line for the user.

        Raises:
            ConfigurationError: credentials or the bucket are at fault.
            StoreError: anything else.
        """
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            text = first_line(error)
            if "NO_SUCH_BUCKET" in text:
                raise self._no_bucket() from error
            if refused := _REFUSED.search(text):
                # Without the service's own words: some repeat what they were sent.
                raise ConfigurationError(
                    f"{self.url}: the service refused to {action} ({refused[0]}): set AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to a key that may do that"
                ) from None
            raise StoreError(
                f"{self.url}: cannot {action}: {text}; mend that and run the same command again"
            ) from error

    def require_bucket(self) -> None:
        """Tells a bucket without a store from no bucket.

        Raises:
            ConfigurationError: there is no such bucket.
        """
        if self.is_a_directory:
            return
        with self.errors("look for the bucket"):
            info = self.filesystem.get_file_info(self.prefix.partition("/")[0])
        if info.type == pafs.FileType.NotFound:
            raise self._no_bucket()

    def _no_bucket(self) -> ConfigurationError:
        bucket = self.prefix.partition("/")[0]
        return ConfigurationError(f"{self.url}: there is no bucket {bucket}: create it, or mend the URL")


def is_url(text: str) -> bool:
    """Whether a store is named by a URL, not by a path."""
    return "://" in text


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _with_single_put(url: str) -> str:
    # Small objects then go up in one PUT, whose checksum the service gives; else each is a multipart upload.
    option = "allow_delayed_open=true"
    return url if "allow_delayed_open=" in url else f"{url}{'&' if '?' in url else '?'}{option}"
