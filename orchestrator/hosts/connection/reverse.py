"""Whether a host reaches this machine: what a cluster needs besides our reaching the host."""

import secrets
import socket
import threading

from orchestrator.hosts.connection.ssh import Connections

# Whichever of these the host has; each sends one line to an address and port. 77: it has none.
_SEND = """
address=$1 port=$2 word=$3
if command -v python3 >/dev/null 2>&1; then
  exec python3 -c 'import socket,sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as s: s.sendall(sys.argv[3].encode() + b"\\n")' \\
    "$address" "$port" "$word"
elif command -v bash >/dev/null 2>&1; then
  exec timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1" && echo "$2" >&3' "$address" "$port" "$word"
elif command -v nc >/dev/null 2>&1; then
  echo "$word" | exec timeout 5 nc "$address" "$port"
fi
exit 77
"""
_NO_TOOL = 77
_WAIT_S = 2.0


def reverse_problem(connections: Connections, name: str, address: str, timeout_s: float, port: int = 0) -> str | None:
    """Why a host cannot connect to this machine, in one line; None if it can.

    Args:
        connections: by which the host is reached.
        name: of the host.
        address: of this machine, as the host is to call it.
        timeout_s: for all of it.
        port: to be reached; 0 takes any that is free. Nobody else may listen on it.

    Raises:
        HostConnectionError: the host itself was not reached.
        OSError: this machine cannot listen there.
    """
    word = secrets.token_hex(8)
    with socket.create_server(("", port)) as server:
        chosen = server.getsockname()[1]
        heard = threading.Event()
        listener = threading.Thread(target=_listen, args=(server, word, heard), daemon=True)
        listener.start()
        argv = ["sh", "-s", "--", address, str(chosen), word]
        done = connections.run(name, argv, timeout_s, stdin=_SEND)
        arrived = heard.wait(_WAIT_S if done.exit_code == 0 else 0)
        # wakes the listener; on Linux closing alone does not
        server.shutdown(socket.SHUT_RDWR)
        listener.join()
    if arrived:
        return None
    if done.exit_code == _NO_TOOL:
        return "it has neither python3, bash nor nc, so whether it reaches this machine could not be tested"
    return (
        f"it does not reach this machine at {address}, port {chosen}: let a firewall pass it, or give this machine an "
        "address that the host knows"
    )


def _listen(server: socket.socket, word: str, heard: threading.Event) -> None:
    while not heard.is_set():
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(_WAIT_S)
            # a stranger who is silent is nobody we wait for
            if _first_line(connection) == word:
                heard.set()


def _first_line(connection: socket.socket) -> str:
    try:
        return connection.recv(256).decode("ascii", "replace").strip()
    except OSError:
        return ""
