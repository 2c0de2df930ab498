"""Environments: one lock each, built as an image or as a virtual environment."""

from orchestrator.environments.base import ensure_base
from orchestrator.environments.build import ensure_image
from orchestrator.environments.catalogue import Catalogue, EnvironmentEntry, lock_sha256, recipe_sha256
from orchestrator.environments.engine import connect, engine_problem
from orchestrator.environments.identity import ImageIdentity, differences
from orchestrator.environments.prepare import prepare
from orchestrator.environments.record import BuiltImage, read_built_images
from orchestrator.environments.recording import identity_on
from orchestrator.environments.virtualenv import VirtualEnvironment, ensure_virtualenv, virtualenv_problem
from orchestrator.environments.wheels import ensure_wheels

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
