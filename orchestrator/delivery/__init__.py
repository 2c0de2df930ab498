"""Brings rows from the hosts into the store: spooled there, streamed, stored once, then acknowledged."""

from orchestrator.delivery.beats import Heard, Heart, LastBeat
from orchestrator.delivery.client import Client, DeliveryError
from orchestrator.delivery.committing import Committer, Tell
from orchestrator.delivery.counterpart import Counterpart, Reproduces, with_counterpart
from orchestrator.delivery.leftovers import deliver_leftovers
from orchestrator.delivery.link import Destination
from orchestrator.delivery.parcels import Answer, Outcome, ParcelError, RowKey, Rows, encode_rows
from orchestrator.delivery.recording import Origin, Recording, environment_id, is_of_this_run
from orchestrator.delivery.server import Server
from orchestrator.delivery.spool import Spool, SpoolError

__all__ = [
    "Answer",
    "Client",
    "Committer",
    "Counterpart",
    "DeliveryError",
    "Destination",
    "Heard",
    "Heart",
    "LastBeat",
    "Origin",
    "Outcome",
    "ParcelError",
    "Recording",
    "Reproduces",
    "RowKey",
    "Rows",
    "Server",
    "Spool",
    "SpoolError",
    "Tell",
    "deliver_leftovers",
    "encode_rows",
    "environment_id",
    "is_of_this_run",
    "with_counterpart",
]
