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
OFFERED = "it offers ED25519 SHA256:HndrkVk3WsHVIa7FrVJPI8CVv1qlryJRmrxfQTA5T78"
PINNED = "SHA256:YlAR6gawrCkPENakVQJoDNsxnNlVTjKeB3S2dMCIUiw"
COMPARE = "compare the fingerprint there (`taxmeter hosts key h1` prints the key) and"
DENIED = "Permission denied (publickey)."
REACHED_FOR = "ssh: connect to host h1 port 22"


def unknown(name: str) -> str:
    return f"No ED25519 host key is known for {name} and you have ...\nHost key verification failed.\n"


@pytest.mark.parametrize(
    ("said", "changes", "told"),
    [
        (CHANGED, {}, f"wrong host key: {OFFERED}, but your known_hosts has another (/home/me/.ssh/known_hosts:7)"),
        (CHANGED, {"host_key": KEY}, f"{OFFERED}, but the inventory pins {PINNED}"),
        (CHANGED, {}, f"{COMPARE} replace that entry; else somebody may be in between"),
        (CHANGED, {"host_key": KEY}, f"{COMPARE} update `host_key:`; else somebody may be in between"),
        (unknown("h1"), {}, "its host key is not known: `taxmeter hosts key h1` prints"),
        (unknown("h1"), {"jump": "gate:2222"}, "its host key is not known: `taxmeter hosts key h1` prints"),
        (unknown("[gate]:2222"), {"jump": "gate:2222"}, "the jump host [gate]:2222 has a host key that is unknown"),
        (f"bench@h1: {DENIED}\n", {}, f"it refuses bench ({DENIED}): add your public key to ~bench/.ssh/authorized"),
        ("Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures\n", {}, "`identity_file:`"),
        (f"{REACHED_FOR}: Connection refused\n", {}, "h1 port 22: Connection refused): nothing listens on port 22"),
        (f"{REACHED_FOR}: No route to host\n", {}, "unreachable (connect to host h1 port 22: No route to host): is"),
        ("ssh: Could not resolve hostname h1: Name or service not known\n", {}, "correct `address:`"),
        (f"{REACHED_FOR}: Connection timed out\n", {}, "no answer (connect to host h1 port 22: Connection timed out)"),
        ("Connection timed out during banner exchange\n", {}, "does a firewall let port 22 through?"),
        (
            "kex_exchange_identification: Connection closed by remote host\n",
            {},
            "unreachable (kex_exchange_identificat",
        ),
        (
            "/.ssh/config: line 3: Bad configuration option: foo\n/.ssh/config: terminating, 1 bad\n",
            {},
            "/config: line 3",
        ),
        (f'Load key "/me/key": bad permissions\nbench@h1: {DENIED}\n', {}, 'machine (Load key "/me/key": bad permi'),
        ("first\nsomething new\n", {}, "ssh failed: something new"),
        ("", {}, "ssh failed: it ended without a word"),
    ],
)
def test_each_kind_of_failure_is_told_apart(said: str, changes: dict[str, str], told: str) -> None:
    error = explain("h1", Host(connection=Connection.SSH, address="h1", **changes), said)  # type: ignore[arg-type]
    assert str(error) == f"h1: {error.problem}"
    assert told in error.problem
    assert "\n" not in error.problem
