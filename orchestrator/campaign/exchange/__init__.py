"""Sweeps for machines without Ray or Docker: tasks go out as a directory, and come back as rows of the store."""

from orchestrator.campaign.exchange.export import cores_of, exported_host, write_export
from orchestrator.campaign.exchange.intake import ImportReport, import_export
