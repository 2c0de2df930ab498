"""What ssh says, word for word, becomes one line with the reason and the fix."""

import pytest

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


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (CHANGED, "but your known_hosts has another (/home/me/.ssh/known_hosts:7)"),
        (UNKNOWN, "`taxmeter hosts key h1` prints the key that it offers; compare"),
        ("bench@h1: Permission denied (publickey).\n", "it refuses bench (Permission denied"),
        (
            "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures\n",
            "ssh offered too many keys; name the right one as `identity_file:`",
        ),
        ("ssh: connect to host h1 port 22: Connection refused\n", "nothing listens on port 22"),
        (
            "ssh: connect to host h1 port 22: No route to host\n",
            "is the host up, is `address:` right",
        ),
        (
            "ssh: Could not resolve hostname h1: Name or service not known\n",
            "unreachable (Could not resolve hostname h1: Name or service not known): correct `address:`",
        ),
        (
            "ssh: connect to host h1 port 22: Connection timed out\n",
            "does a firewall let port 22 through",
        ),
        ("Connection timed out during banner exchange\n", "no answer (Connection timed out during"),
        ("kex_exchange_identification: Connection closed by remote host\n", "unreachable (kex_"),
        (
            "/home/me/.ssh/config: line 3: Bad configuration option: foo\n/home/me/.ssh/config: terminating, 1 bad\n",
            "ssh cannot use a file of this machine (/home/me/.ssh/config: line 3: Bad configuration option: foo)",
        ),
        (
            'Load key "/home/me/key": bad permissions\nbench@h1: Permission denied (publickey).\n',
            'ssh cannot use a file of this machine (Load key "/home/me/key": bad permissions)',
        ),
        ("first\nsomething new\n", "ssh failed: something new"),
        ("", "ssh failed: it ended without a word"),
    ],
)
def test_each_kind_of_failure_is_told_apart(said: str, expected: str) -> None:
    error = explain("h1", host(), said)
    assert expected in error.problem
    assert str(error) == f"h1: {error.problem}"
    assert "\n" not in str(error)


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
