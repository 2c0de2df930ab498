"""What the record says an image must be, and the refusal of anything else."""

from orchestrator.environments.identity import ImageIdentity, differences, layer_differences
from orchestrator.environments.record import BuiltImage
from orchestrator.errors import ConfigurationError, InfrastructureError


def expected_of(image: BuiltImage) -> ImageIdentity:
    """The identity that is recorded.

    Raises:
        ConfigurationError: an earlier version recorded too little.
    """
    if image.identity is None:
        raise ConfigurationError(
            f"an earlier version recorded too little about {image.reference}: run `taxmeter images build` first"
        )
    return image.identity


def recorded_differences(recorded: BuiltImage, found: ImageIdentity) -> tuple[str, ...]:
    """In what an image differs from the recorded one, as far as the record tells; a line for each difference.

    The id of an image is a digest of its content. So where the id and the layers are the recorded ones while the
    digest of the settings is not, only our rule for that digest has changed, and the image is the recorded one.
    """
    expected = recorded.identity
    layers = tuple(layer_differences(recorded.layers, found.layers))
    if expected is None or (not layers and found.image_id == expected.image_id):
        return layers
    return differences(expected, found)


def insist(expected: ImageIdentity, found: ImageIdentity, what: str, consequence: str) -> None:
    """Refuses an image that is not the expected one.

    Args:
        expected: what it must be.
        found: what it is.
        what: the image, such as `what arrived`.
        consequence: what was therefore not done.

    Raises:
        InfrastructureError: it is another image.
    """
    wrong = differences(expected, found)
    if wrong:
        raise InfrastructureError(
            f"{what} is not the recorded image, so {consequence}: expected {expected.image_id}, found "
            f"{found.image_id}; {'; '.join(wrong)}"
        )
