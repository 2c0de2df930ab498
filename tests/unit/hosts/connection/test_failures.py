"""What ssh says, word for word, becomes one line with the reason and the fix."""

from syrupy.assertion import SnapshotAssertion

from orchestrator.config import Connection, Host
from orchestrator.hosts.connection.failures import explain

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdRrLCEn7RgVU/YrTkY3kozl+32/KIemnbbwB+QCT75"
CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Someone could be eavesdropping on you right now (man-in-the-middle attack)!
It is also possible that a host key has just been changed.
The fingerprint for the ED25519 key sent by the remote host is
SHA256:HndrkVk3WsHVIa7FrVJPI8CVv1qlryJRmrxfQTA5T78.
Please contact your system administrator.
Add correct host key in /home/me/.ssh/known_hosts to get rid of this message.
Offending ED25519 key in /home/me/.ssh/known_hosts:7
  remove with:
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "h1"
Host key for h1 has changed and you have requested strict checking.
Host key verification failed.
"""
UNKNOWN = """\
No ED25519 host key is known for h1 and you have requested strict checking.
Host key verification failed.
"""


def host(**changes: object) -> Host:
    return Host(**({"connection": Connection.SSH, "address": "h1"} | changes))  # type: ignore[arg-type]


SAID = (
    CHANGED,
    UNKNOWN,
    "bench@h1: Permission denied (publickey).\n",
    "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures\n",
    "ssh: connect to host h1 port 22: Connection refused\n",
    "ssh: connect to host h1 port 22: No route to host\n",
    "ssh: Could not resolve hostname h1: Name or service not known\n",
    "ssh: connect to host h1 port 22: Connection timed out\n",
    "Connection timed out during banner exchange\n",
    "kex_exchange_identification: Connection closed by remote host\n",
    "/home/me/.ssh/config: line 3: Bad configuration option: foo\n/home/me/.ssh/config: terminating, 1 bad\n",
    'Load key "/home/me/key": bad permissions\nbench@h1: Permission denied (publickey).\n',
    "first\nsomething new\n",
    "",
)


def test_each_kind_of_failure_is_told_apart(snapshot: SnapshotAssertion) -> None:
    told = [str(explain("h1", host(), said)) for said in SAID]
    assert told == snapshot
    assert all(line.startswith("h1: ") and "\n" not in line for line in told)


def test_a_pinned_key_that_is_not_the_offered_one_shows_both() -> None:
    problem = explain("h1", host(host_key=KEY), CHANGED).problem
    assert "it offers ED25519 SHA256:HndrkVk3WsHVIa7FrVJPI8CVv1qlryJRmrxfQTA5T78" in problem
    assert "but the inventory pins SHA256:YlAR6gawrCkPENakVQJoDNsxnNlVTjKeB3S2dMCIUiw" in problem
    assert "update `host_key:`; else somebody may be in between" in problem


def test_the_key_of_a_jump_host_is_not_taken_for_the_key_of_the_host() -> None:
    said = "No ED25519 host key is known for [gate]:2222 and you have requested strict checking.\nHost key verification failed.\n"
    error = explain("h1", host(jump="gate:2222"), said)
    assert "the jump host [gate]:2222 has a host key that is unknown" in error.problem
    own = explain("h1", host(jump="gate:2222"), UNKNOWN)
    assert "`taxmeter hosts key h1`" in own.problem
