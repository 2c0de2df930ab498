"""Sweeps for machines without Ray or Docker: tasks go out as a directory, and come back as rows of the store."""

from orchestrator.exchange.importing import ImportReport, import_export
from orchestrator.exchange.machine import Cores, cores_of, exported_host
from orchestrator.exchange.manifest import Manifest, read_manifest
from orchestrator.exchange.writing import Origin, write_export

__all__ = [
    "Cores",
    "ImportReport",
    "Manifest",
    "Origin",
    "cores_of",
    "exported_host",
    "import_export",
    "read_manifest",
    "write_export",
]
