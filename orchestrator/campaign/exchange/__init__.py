"""Sweeps for machines without Ray or Docker: tasks go out as a directory, and come back as rows of the store."""

from orchestrator.campaign.exchange.importing import ImportReport, import_export
from orchestrator.campaign.exchange.manifest import Manifest, read_manifest
from orchestrator.campaign.exchange.writing import Cores, cores_of, exported_host, write_export

__all__ = [
    "Cores",
    "ImportReport",
    "Manifest",
    "cores_of",
    "exported_host",
    "import_export",
    "read_manifest",
    "write_export",
]
