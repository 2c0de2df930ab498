"""What is known about the system that measures: fingerprint, identities, conditions and environment.

The same code runs on the host and inside a container. It reads /proc and /sys, and NVML where there is one;
what a system does not tell is null.
"""

from runners.system.conditions import read as read_conditions
from runners.system.core_times import cores_in, cores_text
from runners.system.document import SystemRoot, describe_system, fingerprint_of_system
from runners.system.environment import observe as observe_environment
from runners.system.environment import observe_versions
from runners.system.fingerprint import Fingerprint, Private, collect
from runners.system.identity import hardware_fields, hot_columns, hw_id, system_fields, system_id
from runners.system.limits import Limits
from runners.system.topology import GpuPlace, NumaNode, Topology, bus_id
