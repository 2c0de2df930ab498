"""An object store for the tests, as a process that they can kill."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

SERVER = Path(__file__).resolve().parent / "servers" / "swift.py"


class ObjectService:
    """An S3 service on this machine: OpenStack Swift, with accounts and signatures as anywhere."""

    credentials = ("test:tester", "testing")

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._where = self._read()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._where['port']}"

    def url(self, path: str) -> str:
        """The URL of `BUCKET/PREFIX`, as our users write it."""
        return f"s3://{path}?endpoint_override={self.endpoint}&scheme=http&region=us-east-1"

    def kill(self) -> None:
        """Kills what answers requests, in the middle of whatever it does. What is stored stays."""
        os.kill(self._where["pids"]["proxy"], signal.SIGKILL)

    def restart(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("restart\n")
        self._process.stdin.flush()
        self._where = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise RuntimeError(self._process.stderr.read().strip())
        where: dict[str, Any] = json.loads(line)
        return where
