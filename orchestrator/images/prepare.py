"""What `taxmeter images build` does."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from orchestrator.images.build import ensure_image
from orchestrator.images.catalogue import Catalogue
from orchestrator.images.engine import connect
from orchestrator.images.record import BuiltImage


def prepare(names: Sequence[str], catalogue: Path, say: Callable[[str], None]) -> dict[str, BuiltImage]:
    """Makes sure that the engine has the images of these environments, or of all when none is named.

    Raises:
        ConfigurationError: the catalogue is malformed, or an environment is not in it.
        InfrastructureError: no engine answers, or an image cannot be built.
    """
    known = Catalogue.load(catalogue)
    entries = [known.entry(name) for name in (names or sorted(known.entries))]
    with closing(connect()) as client:
        return {entry.name: ensure_image(entry, client, say) for entry in entries}
