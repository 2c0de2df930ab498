"""Reduces what engines, registries and pip print to one line that says what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from docker.errors import APIError, DockerException, StreamParseError
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from orchestrator.environments.installers import hash_mismatch
from orchestrator.errors import InfrastructureError

ENGINE_EXCEPTIONS = (DockerException, StreamParseError, RequestException, HTTPError)
"""What the SDK raises; the last where it reads a stream by itself, which nobody translates."""

# The engine passes its registry client's text on, under one status code for everything; there is no error code to read.
_UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|connection reset|network is unreachable|no route to host"
    r"|request canceled|deadline exceeded|Client\.Timeout|TLS handshake|proxyconnect|name resolution|\bEOF\b"
)
_UNTRUSTED = re.compile(r"x509: |failed to verify certificate|certificate (signed by unknown|has expired|is not)")
_NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_PLAIN_HTTP = re.compile(r"server gave HTTP response to HTTPS client")
_DENIED = re.compile(r"\bdenied\b|unauthorized|authentication required|no basic auth credentials|forbidden", re.I)
_UNKNOWN = re.compile(r"manifest unknown|manifest for .* not found|name unknown|repository .* not found|: not found")
_LOST = re.compile(
    r"Connection aborted|Connection broken|Broken ?pipe|RemoteDisconnected|IncompleteRead|Connection reset by peer"
)
_SLOW = re.compile(r"[Rr]ead timed out|ReadTimeout")
_ENGINE_DOWN = re.compile(r"Cannot connect to the Docker daemon[^\n]*|error during connect:[^\n]*")

_BUILD_PREFIX = re.compile(r"^#\d+ [\d.]+ ?", re.MULTILINE)


def is_unreachable(message: str) -> bool:
    """Whether an engine's message about a registry says that it was not reached at all.

    One whose certificate is not trusted was reached: whoever answered may be anybody.
    """
    return _UNREACHABLE.search(message) is not None and _UNTRUSTED.search(message) is None


def engine_message(error: Exception) -> str:
    """What an engine or the connection to it said, in one line."""
    said = error.explanation if isinstance(error, APIError) else None
    return " ".join(str(said or error).split())


def explain(message: str) -> str:
    """A message of an engine, or of the connection to it, in one line and with what mends it."""
    text = " ".join(message.split())
    if _NO_SPACE.search(text):
        return f"the disk is full: {text}; `docker system df` shows what fills it"
    if _LOST.search(text):
        return f"the engine broke the connection off ({text}); its log says why, often a full disk"
    if _SLOW.search(text):
        return f"the engine did not answer in time ({text})"
    return text


def explain_registry(message: str) -> str:
    """What an engine said about a registry that it was to push to or pull from, in one line and with what mends it."""
    text = " ".join(message.split())
    if _NO_SPACE.search(text):
        return explain(text)
    if _UNTRUSTED.search(text):
        return (
            f"the engine does not trust the registry's certificate ({text}): put the authority that signed it into "
            "/etc/docker/certs.d/HOST/ca.crt where the engine runs"
        )
    if _PLAIN_HTTP.search(text):
        return f"the registry speaks plain HTTP: name it under insecure-registries in the engine's settings ({text})"
    if _DENIED.search(text):
        return f"the registry refuses: {text}; `docker login` with an account that may"
    if _UNKNOWN.search(text):
        return f"the registry does not have it: {text}"
    if is_unreachable(text):
        return f"the registry cannot be reached: {text}"
    return explain(text)


def build_failure(output: str) -> str | None:
    """The one reason in the log of a build, where it is a known one; null if the log itself must be read."""
    mismatch = hash_mismatch(_BUILD_PREFIX.sub("", output))
    if mismatch is not None:
        return mismatch
    space = next((line for line in output.splitlines() if _NO_SPACE.search(line)), None)
    if space is not None:
        return explain(_BUILD_PREFIX.sub("", space))
    down = _ENGINE_DOWN.search(output)
    return None if down is None else " ".join(down[0].split())


@contextmanager
def engine_errors(what: str, about_a_registry: bool = False) -> Iterator[None]:
    """Turns what an engine or its connection raises into one line that begins with `what`.

    Args:
        what: what cannot be done.
        about_a_registry: the engine was asked to speak to one, so that its words are about that.

    Raises:
        InfrastructureError: the engine refused or was lost.
    """
    try:
        yield
    except ENGINE_EXCEPTIONS as error:
        # What is raised without an answer of the engine is about the connection to the engine itself.
        words = explain_registry if about_a_registry and isinstance(error, APIError) else explain
        raise InfrastructureError(f"{what}: {words(engine_message(error))}") from error
