"""Environments: one lock each, built as an image or as a virtual environment.

What fails of an engine, a registry or a download is an `InfrastructureError`, what a user wrote or named wrongly a
`ConfigurationError`: one line each. Docstrings name errors where something else is to be known of them.
"""

from orchestrator.environments.build import Build, build_image
from orchestrator.environments.catalogue import (
    Catalogue,
    EnvironmentEntry,
    Pin,
    description,
    lock_sha256,
    read_lock,
    recipe_digest,
    recipe_sha256,
)
from orchestrator.environments.engine import (
    ENGINE_EXCEPTIONS,
    TRANSFER_TIMEOUT_S,
    UNLABELLED,
    attributes_of,
    connect,
    end_of,
    engine_address,
    engine_errors,
    engine_message,
    engine_problem,
    host_network_problem,
    remove_container,
    remove_forgotten,
    short_container,
    start_container,
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
    ImageLookup,
    ensure_image,
    look_for_image,
    prepare,
    pull_stored_image,
)
from orchestrator.environments.record import BuiltImage, StoredImage, compare_images, read_built_images, verify_images
from orchestrator.environments.registry import pull_images, push_images
from orchestrator.environments.resolution import resolve_locks
from orchestrator.environments.transfer import (
    Awaited,
    copy_environment,
    copy_image,
    find_image,
    load_environment,
    receive_image,
    save_environment,
    saved_image,
)
from orchestrator.environments.virtualenv import (
    ensure_virtualenv,
    environment_differences,
    lock_differences,
    virtualenv_problem,
)
