"""What is in a file that `taxmeter images save`, or an engine's own `save`, wrote."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from orchestrator.errors import ConfigurationError


def is_archive(name: str) -> bool:
    """Whether a name on the command line is meant as such a file."""
    path = Path(name)
    return path.suffix == ".tar" or (path.is_file() and tarfile.is_tarfile(path))


def read_archive(path: Path) -> dict[str, Any]:
    """The image in a file, in the form in which engines describe images. Layers are not unpacked.

    Raises:
        ConfigurationError: it cannot be read, is cut off, or holds no image or several.
    """
    try:
        with tarfile.open(path) as archive:
            manifest = _member(archive, "manifest.json")
            images = json.loads(manifest)
            if len(images) != 1:
                raise ConfigurationError(f"{len(images)} images; expected one", file=path)
            data = _member(archive, images[0]["Config"])
            members = set(archive.getnames())
            missing = [name for name in images[0]["Layers"] if name not in members]
            if missing:
                raise ConfigurationError(f"the layer {missing[0]} is missing; save the image again", file=path)
    except FileNotFoundError:
        raise ConfigurationError("no such file", file=path) from None
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", file=path) from None
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"no saved image, or one that was cut off ({' '.join(str(error).split())}); "
            "`taxmeter images save` writes such files",
            file=path,
        ) from None
    return _attributes(data)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    if stream is None:
        raise KeyError(f"{name} is no file")
    return stream.read()


def _attributes(data: bytes) -> dict[str, Any]:
    configuration = json.loads(data)
    return {
        "Id": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "Architecture": configuration.get("architecture"),
        "Os": configuration.get("os"),
        "Config": configuration.get("config"),
        "RootFS": {"Layers": configuration["rootfs"]["diff_ids"]},
    }
