"""What engines, registries and pip print, as one line. The messages are real ones."""

import socket
import threading

import docker
import pytest
from docker.errors import APIError, StreamParseError
from requests.exceptions import ConnectionError as LostConnectionError
from urllib3.exceptions import ReadTimeoutError

from orchestrator.environments import engine_errors
from orchestrator.environments.build import build_failure
from orchestrator.environments.engine import explain, explain_registry
from orchestrator.environments.packages import hash_mismatch, pip_failure, uv_failure
from orchestrator.errors import InfrastructureError

GOT = "fab454a559fed7294d9de546ece075cb0fef9acbccc55427d3fe5c4af9a4abfb"
PIP = f"""\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, \
please update the hashes. Otherwise, examine the package contents carefully; someone may have tampered with them.
    tiny-pkg==1.0 from file:///tmp/wheels/tiny_pkg-1.0-py3-none-any.whl (from -r /tmp/requirements.lock (line 1)):
        Expected sha256 {"0" * 64}
             Got        {GOT}

"""
UV = f"""\
Using Python 3.11.7 environment at: v
error: Failed to download `tiny-pkg==1.0`
  cause: Hash mismatch for `tiny-pkg==1.0`

         Expected:
           sha256:{"0" * 64}

         Computed:
           sha256:{GOT}
"""


def in_a_build(output: str) -> str:
    """The same in the log of a build."""
    return "".join(f"#12 4.123 {line}\n" for line in output.splitlines()) + "#12 ERROR: process did not complete\n"


@pytest.mark.parametrize(
    ("read", "output"), [(pip_failure, PIP), (lambda text: build_failure(in_a_build(text)), PIP), (uv_failure, UV)]
)
def test_a_wrong_hash_names_the_distribution_and_both_hashes(read, output: str) -> None:
    line = read(output)
    assert line.startswith(f"tiny-pkg==1.0: the lock expects sha256 {'0' * 64}, but what was fetched has {GOT}; ")
    assert "\n" not in line


def test_several_hashes_may_be_expected() -> None:
    several = PIP.replace("             Got", f"        Expected     or {'1' * 64}\n             Got")
    assert f"{'0' * 64} or one of 1 more, but" in (hash_mismatch(several) or "")
    several = UV.replace("\n\n         Computed", f"\n           sha256:{'1' * 64}\n\n         Computed")
    assert f"{'0' * 64} or one of 1 more, but" in (hash_mismatch(several) or "")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (
            "warning: x\nerror: No solution found when resolving dependencies\n  cause: Because there is no\n    version",
            "No solution found when resolving dependencies: Because there is no version",
        ),
        (
            "error: Failed to fetch: https://x/six/\n  cause: client error (Connect)\n  cause: dns error",
            "Failed to fetch: https://x/six/: dns error",
        ),
        ("error: one line", "one line"),
        ("", "uv failed without a message"),
    ],
)
def test_uv_s_error_is_told_with_its_last_cause(output: str, told: str) -> None:
    assert uv_failure(output) == told


def test_a_package_from_an_index_is_named_too() -> None:
    plain = PIP.replace(" from file:///tmp/wheels/tiny_pkg-1.0-py3-none-any.whl", "")
    assert (hash_mismatch(plain) or "").startswith("tiny-pkg==1.0: the lock expects")


def test_other_output_of_a_build_has_no_known_reason() -> None:
    assert hash_mismatch("Collecting torch\n") is None
    assert build_failure('#5 ERROR: process "/bin/sh -c apt-get update" did not complete\n') is None


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "#9 12.33 ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "the disk is full: ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device; ",
        ),
        (
            "#14 exporting layers\n#14 ERROR: write /var/lib/docker/tmp/x: no space left on device\n",
            "the disk is full: #14 ERROR: write /var/lib/docker/tmp/x: no space left on device; ",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        ),
    ],
)
def test_a_build_that_a_machine_is_to_blame_for(log: str, expected: str) -> None:
    assert (build_failure(log) or "").startswith(expected)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "the disk is full: "),
        (
            'Get "https://lab:5000/v2/": http: server gave HTTP response to HTTPS client',
            "the registry speaks plain HTTP: name it under insecure-registries",
        ),
        ("denied: requested access to the resource is denied", "the registry refuses: denied: "),
        ("unauthorized: authentication required", "the registry refuses: unauthorized"),
        ("no basic auth credentials", "the registry refuses: no basic auth"),
        (
            "manifest for python@sha256:00 not found: manifest unknown: manifest unknown",
            "the registry does not have it: ",
        ),
        (
            'Get "http://127.0.0.1:9/v2/": dial tcp 127.0.0.1:9: connect: connection refused',
            "the registry cannot be reached: ",
        ),
        (
            'Get "https://lab:5000/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority',
            "the engine does not trust the registry's certificate (",
        ),
        ("something\n  new", "something new"),
    ],
)
def test_a_message_about_a_registry_says_what_to_do(message: str, expected: str) -> None:
    assert explain_registry(message).startswith(expected)
    assert "\n" not in explain_registry(message)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "the disk is full: "),
        ("('Connection aborted.', BrokenPipeError(32, 'Broken pipe'))", "the engine broke the connection off"),
        ("UnixHTTPConnectionPool(host='localhost', port=None): Read timed out.", "the engine did not answer in time"),
    ],
)
def test_a_message_of_an_engine_says_what_to_do(message: str, expected: str) -> None:
    assert explain(message).startswith(expected)


@pytest.mark.parametrize(
    "message",
    [
        "archive/tar: unexpected EOF",
        "OCI runtime create failed: runc create failed: open /dev/x: permission denied: unknown",
        "dial unix /var/run/docker.sock: connect: permission denied",
        'exec: "python": stat python: not found: unknown',
    ],
)
def test_no_registry_is_blamed_where_there_is_none(message: str) -> None:
    assert explain(message) == message
    error = APIError("500 Server Error", explanation=message)
    with pytest.raises(InfrastructureError) as raised, engine_errors("a copy failed"):
        raise error
    assert str(raised.value) == f"a copy failed: {message}"


def test_in_a_push_the_engine_speaks_of_the_registry_and_its_connection_of_itself() -> None:
    refused = APIError("500 Server Error", explanation="denied: requested access to the resource is denied")
    with pytest.raises(InfrastructureError, match="the registry refuses"), engine_errors("x", about_a_registry=True):
        raise refused
    lost = LostConnectionError("dial unix /var/run/docker.sock: connect: permission denied")
    with pytest.raises(InfrastructureError) as raised, engine_errors("x", about_a_registry=True):
        raise lost
    assert "registry" not in str(raised.value)


def answer_and_break_off(listener: socket.socket) -> None:
    """An engine that ends in the middle of a chunk of 256 bytes."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n" + b'{"status": "Pu')


def test_an_engine_that_ends_in_the_middle_of_a_stream_is_one_line() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        engine = threading.Thread(target=answer_and_break_off, args=(listener,))
        engine.start()
        client = docker.DockerClient(f"tcp://127.0.0.1:{listener.getsockname()[1]}", version="1.41", timeout=5)
        try:
            with (
                pytest.raises(InfrastructureError, match="^a pull failed: the engine broke the connection off"),
                engine_errors("a pull failed"),
            ):
                list(client.api.pull("x", tag="y", stream=True, decode=True))
        finally:
            engine.join()
            client.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (APIError("500 Server Error", explanation="write /x: no space left on device"), "the disk is full: write /x: "),
        (
            LostConnectionError("('Connection aborted.', RemoteDisconnected('Remote end closed connection'))"),
            "the engine broke the connection off",
        ),
        (ReadTimeoutError(None, "/x", "Read timed out."), "the engine did not answer in time"),
        (StreamParseError("Extra data"), "Extra data"),
    ],
)
def test_what_an_engine_raises_becomes_one_line(error: Exception, expected: str) -> None:
    with pytest.raises(InfrastructureError, match=f"^a copy failed: {expected}"), engine_errors("a copy failed"):
        raise error
