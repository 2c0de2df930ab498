"""Environments: one lock each, built as an image or as a virtual environment."""

from orchestrator.environments.base import ensure_base
from orchestrator.environments.build import BuildPolicy, ensure_image
from orchestrator.environments.builder import Builder, find_builder
from orchestrator.environments.catalogue import Catalogue, EnvironmentEntry, lock_sha256, recipe_sha256
from orchestrator.environments.command import Build, run_build
from orchestrator.environments.describing import description
from orchestrator.environments.engine import (
    TRANSFER_TIMEOUT_S,
    UNLABELLED,
    attributes_of,
    connect,
    engine_address,
    engine_problem,
    host_network_problem,
    remove_container,
)
from orchestrator.environments.expectation import expected_of
from orchestrator.environments.identity import (
    ImageIdentity,
    differences,
    identity_of,
    mapping_differences,
    short_digest,
)
from orchestrator.environments.lock import Pin, read_lock
from orchestrator.environments.messages import ENGINE_EXCEPTIONS, engine_errors, engine_message
from orchestrator.environments.prepare import prepare
from orchestrator.environments.record import BuiltImage, read_built_images
from orchestrator.environments.recording import LABEL_ENVIRONMENT, identity_on
from orchestrator.environments.resolution import resolve_locks
from orchestrator.environments.stored import Looked, StoredImage, look_for_image, pull_stored_image
from orchestrator.environments.streaming import Awaited, receive_image, saved_image
from orchestrator.environments.transfer import copy_identical, copy_image
from orchestrator.environments.verify import Verified, compare_images, verify_images
from orchestrator.environments.virtualenv import (
    VirtualEnvironment,
    ensure_virtualenv,
    lock_differences,
    virtualenv_problem,
)
from orchestrator.environments.wheels import ensure_wheels

__all__ = [
    "ENGINE_EXCEPTIONS",
    "LABEL_ENVIRONMENT",
    "TRANSFER_TIMEOUT_S",
    "UNLABELLED",
    "Awaited",
    "Build",
    "BuildPolicy",
    "Builder",
    "BuiltImage",
    "Catalogue",
    "EnvironmentEntry",
    "ImageIdentity",
    "Looked",
    "Pin",
    "StoredImage",
    "Verified",
    "VirtualEnvironment",
    "attributes_of",
    "compare_images",
    "connect",
    "copy_identical",
    "copy_image",
    "description",
    "differences",
    "engine_address",
    "engine_errors",
    "engine_message",
    "engine_problem",
    "ensure_base",
    "ensure_image",
    "ensure_virtualenv",
    "ensure_wheels",
    "expected_of",
    "find_builder",
    "host_network_problem",
    "identity_of",
    "identity_on",
    "lock_differences",
    "lock_sha256",
    "look_for_image",
    "mapping_differences",
    "prepare",
    "pull_stored_image",
    "read_built_images",
    "read_lock",
    "receive_image",
    "recipe_sha256",
    "remove_container",
    "resolve_locks",
    "run_build",
    "saved_image",
    "short_digest",
    "verify_images",
    "virtualenv_problem",
]
