"""Asks ports of other machines what they are not to tell: a program of the standard library alone, for any container.

python probe.py QUESTIONS       a JSON list of [address, port, token or null, whether it is right]; prints a JSON list of answers

Each port is asked by HTTP/1.1, and by gRPC for a method of every service that Ray may have there; an empty request for an
object, of who has the token, would end the node.
"""

import json
import socket
import sys
from collections.abc import Callable

LIMIT_S = 5
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA = 4, 1, 0
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PULL = "/ray.rpc.ObjectManagerService/Pull"
METHODS = (
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.InternalKVGcsService/InternalKVKeys",
    "/ray.rpc.JobInfoGcsService/GetAllJobInfo",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    PULL,
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.ReporterService/HealthCheck",
)
PATHS = ("/", "/metrics", "/api/local_raylet_healthz", "/get_runtime_envs_info", "/api/job_agent/jobs/")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: str, value: str) -> bytes:
    """A header in HPACK's plainest form."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def asked_by_grpc(address: str, port: int, token: str | None, method: str) -> str:
    """The status that the server gives, as gRPC numbers them; `no answer` if it speaks no HTTP/2."""
    said = {":method": "POST", ":scheme": "http", ":path": method, ":authority": address}
    said.update({"content-type": "application/grpc", "te": "trailers"})
    if token is not None:
        said["authorization"] = "Bearer " + token
    block = b"".join(literal(name, value) for name, value in said.items())
    request = frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, bytes(5))
    answer = exchange(
        address, port, PREFACE + frame(SETTINGS, 0, 0, b"") + frame(SETTINGS, ACK, 0, b"") + request, status_in
    )
    return status_in(answer) or "no answer"


def status_in(data: bytes) -> str:
    """The value behind the name, which servers send as it is; empty while it has not come."""
    at = data.find(b"grpc-status")
    if at < 0 or len(data) < at + 13:
        return ""
    length = data[at + 11]
    return data[at + 12 : at + 12 + length].decode("ascii", "replace")


def asked_by_http(address: str, port: int, token: str | None, path: str) -> str:
    """The status of HTTP, or `no answer`."""
    bearer = "" if token is None else f"Authorization: Bearer {token}\r\n"
    request = f"GET {path} HTTP/1.1\r\nHost: {address}:{port}\r\n{bearer}Connection: close\r\n\r\n"
    answer = exchange(address, port, request.encode(), lambda data: b"\r\n" in data)
    words = answer.split(b"\r\n")[0].split()
    return words[1].decode("ascii", "replace") if answer.startswith(b"HTTP/1.") and len(words) > 1 else "no answer"


def exchange(address: str, port: int, request: bytes, is_enough: Callable[[bytes], object]) -> bytes:
    """What comes back until it is enough, the other end closes, or the time is up."""
    answer = b""
    try:
        with socket.create_connection((address, port), LIMIT_S) as connection:
            connection.settimeout(LIMIT_S)
            connection.sendall(request)
            while not is_enough(answer):
                piece = connection.recv(65536)
                if not piece:
                    break
                answer += piece
    except OSError as error:
        return answer or type(error).__name__.encode()
    return answer


def main() -> None:
    answers = []
    for address, port, token, is_right in json.loads(sys.argv[1]):
        methods = [method for method in METHODS if not is_right or method != PULL]
        grpc = {method: asked_by_grpc(address, port, token, method) for method in methods}
        http = {path: asked_by_http(address, port, token, path) for path in PATHS}
        answers.append({"grpc": grpc, "http": http})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
