"""The machines of an inventory: how each is reached, what it is, and the cluster that is made of them.

What fails of a host is an `InfrastructureError`, a `HostConnectionError` where it was not reached, and what is wrong in
the inventory a `ConfigurationError`. Docstrings name errors where something else is to be known of them.
"""

from orchestrator.hosts.access import HostAccess, HostFacts, Interpreter, SystemDescription
from orchestrator.hosts.fleet import DriverPlace, Hosts, describe_here, offered_key, open_hosts
from orchestrator.hosts.local import fingerprint_here
from orchestrator.hosts.lock import SweepUnderWayError, a_sweep_is_under_way
