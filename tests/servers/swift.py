"""An S3 service on this machine: OpenStack Swift with its S3 interface, one copy of each object, in one directory.

    python tests/servers/swift.py DIRECTORY

Prints one line of JSON with the port and the process numbers. The line `restart` on standard input starts the proxy again
(`{"port": …}` is printed again), and the end of the input stops everything. The server is installed once into `.taxmeter/`,
from pinned wheels with hashes.
"""

import getpass
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
LOCK = PROJECT / "requirements" / "s3-server.lock"
ACCESS_KEY, SECRET_KEY = "test:tester", "testing"
STORAGE = ("account", "container", "object")
NOT_INSTALLABLE = 3

_COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {directory}
devices = {directory}/devices
mount_check = false
disable_fallocate = true
fallocate_reserve = 0
log_address = {directory}/no-syslog
log_level = ERROR
# A listing lacks whatever was not entered in time, until an updater comes by; none runs here
conn_timeout = 20
node_timeout = 60
container_update_timeout = 60
"""
_STORAGE = """
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
_PROXY = """
[pipeline:main]
pipeline = catch_errors healthcheck s3api tempauth bulk slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:s3api]
use = egg:swift#s3api
[filter:tempauth]
use = egg:swift#tempauth
user_{user} = {secret} .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


def main() -> int:
    directory = Path(sys.argv[1]).resolve()
    try:
        programs = install(PROJECT / ".taxmeter" / "s3-server")
    except subprocess.CalledProcessError as error:
        print(f"swift cannot be installed: {error.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return NOT_INSTALLABLE
    ports = {name: free_port() for name in (*STORAGE, "proxy")}
    configure(programs, directory, ports)
    running = {name: start(programs, directory, name) for name in (*STORAGE, "proxy")}
    try:
        announce(ports["proxy"], running)
        for line in sys.stdin:
            if line.strip() == "restart":
                running["proxy"].kill()
                running["proxy"].wait()
                running["proxy"] = start(programs, directory, "proxy")
                announce(ports["proxy"], running)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return 0


def install(directory: Path) -> Path:
    """The directory with Swift's programs; they are installed if the lock has changed."""
    programs = directory / "bin"
    stamp = directory / "stamp"
    wanted = f"{hashlib.sha256(LOCK.read_bytes()).hexdigest()} {directory}"
    if stamp.is_file() and stamp.read_text() == wanted:
        return programs
    shutil.rmtree(directory, ignore_errors=True)
    run(sys.executable, "-m", "venv", directory)
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
    run(*pip, "--require-hashes", "--only-binary", ":all:", "--requirement", LOCK)
    stamp.write_text(wanted)
    return programs


def configure(programs: Path, directory: Path, ports: dict) -> None:
    """Writes the configuration, and the rings: where each object goes, which is here."""
    (directory / "devices" / "disk").mkdir(parents=True)
    (directory / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = test\n[storage-policy:0]\nname = single\ndefault = yes\n"
    )
    for name, port in ports.items():
        common = _COMMON.format(port=port, user=getpass.getuser(), directory=directory)
        user = ACCESS_KEY.replace(":", "_")
        rest = _PROXY.format(user=user, secret=SECRET_KEY) if name == "proxy" else _STORAGE.format(name=name)
        (directory / f"{name}.conf").write_text(common + rest)
    builder = programs / "swift-ring-builder"
    for name in STORAGE:
        ring = directory / f"{name}.builder"
        run(builder, ring, "create", "4", "1", "1")
        place = ("--region", "1", "--zone", "1", "--ip", "127.0.0.1", "--device", "disk", "--weight", "1")
        run(builder, ring, "add", *place, "--port", str(ports[name]))
        run(builder, ring, "rebalance")


def start(programs: Path, directory: Path, name: str) -> subprocess.Popen:
    with (directory / f"{name}.log").open("a") as log:
        command = [programs / f"swift-{name}-server", directory / f"{name}.conf"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def announce(port: int, running: dict) -> None:
    """Waits until the proxy answers, and says where it is."""
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=5).close()
            break
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline or any(process.poll() is not None for process in running.values()):
                raise
            time.sleep(0.05)
    print(json.dumps({"port": port, "pids": {name: process.pid for name, process in running.items()}}), flush=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
