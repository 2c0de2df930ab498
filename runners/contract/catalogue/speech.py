"""Models of sound, from transformers."""

from typing import Dict

from runners.contract.catalogue.entries import WorkloadInfo

WORKLOADS: Dict[str, WorkloadInfo] = {}
