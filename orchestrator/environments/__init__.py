"""Environments: one lock each, built as an image or as a virtual environment."""

from orchestrator.environments.build import Build, Builder, ensure_base, find_builder, run_build
from orchestrator.environments.catalogue import Catalogue, EnvironmentEntry, description, lock_sha256, recipe_sha256
from orchestrator.environments.engine import (
    ENGINE_EXCEPTIONS,
    TRANSFER_TIMEOUT_S,
    UNLABELLED,
    attributes_of,
    connect,
    engine_address,
    engine_errors,
    engine_message,
    engine_problem,
    host_network_problem,
    remove_container,
)
from orchestrator.environments.identity import (
    ImageIdentity,
    differences,
    identity_of,
    mapping_differences,
    short_digest,
)
from orchestrator.environments.image import (
    BuildPolicy,
    Looked,
    StoredImage,
    ensure_image,
    look_for_image,
    prepare,
    pull_stored_image,
)
from orchestrator.environments.lock import Pin, read_lock
from orchestrator.environments.record import LABEL_ENVIRONMENT, BuiltImage, read_built_images
from orchestrator.environments.registry import pull_images, push_images
from orchestrator.environments.resolution import resolve_locks
from orchestrator.environments.transfer import (
    Awaited,
    copy_environment,
    copy_identical,
    copy_image,
    load_environment,
    receive_image,
    save_environment,
    saved_image,
)
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
    "copy_environment",
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
    "find_builder",
    "host_network_problem",
    "identity_of",
    "load_environment",
    "lock_differences",
    "lock_sha256",
    "look_for_image",
    "mapping_differences",
    "prepare",
    "pull_images",
    "pull_stored_image",
    "push_images",
    "read_built_images",
    "read_lock",
    "receive_image",
    "recipe_sha256",
    "remove_container",
    "resolve_locks",
    "run_build",
    "save_environment",
    "saved_image",
    "short_digest",
    "verify_images",
    "virtualenv_problem",
]
