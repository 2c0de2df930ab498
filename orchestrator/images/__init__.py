"""Environments: one lock each, built as an image or as a virtual environment."""

from orchestrator.images.base import ensure_base
from orchestrator.images.build import ensure_image
from orchestrator.images.catalogue import Catalogue, EnvironmentEntry, lock_sha256, recipe_sha256
from orchestrator.images.engine import connect, engine_problem
from orchestrator.images.identity import ImageIdentity, differences
from orchestrator.images.prepare import prepare
from orchestrator.images.record import BuiltImage, read_built_images
from orchestrator.images.recording import identity_on
from orchestrator.images.virtualenv import VirtualEnvironment, ensure_virtualenv, virtualenv_problem
from orchestrator.images.wheels import ensure_wheels

__all__ = [
    "BuiltImage",
    "Catalogue",
    "EnvironmentEntry",
    "ImageIdentity",
    "VirtualEnvironment",
    "connect",
    "differences",
    "engine_problem",
    "ensure_base",
    "ensure_image",
    "ensure_virtualenv",
    "ensure_wheels",
    "identity_on",
    "lock_sha256",
    "prepare",
    "read_built_images",
    "recipe_sha256",
    "virtualenv_problem",
]
