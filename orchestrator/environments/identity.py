"""What an image is, on an engine or in a file: its layers and the settings that change what runs in it."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.boundary import MAX_JSON_BYTES, open_foreign_file, validated
from orchestrator.errors import ConfigurationError, ForeignDataError, InfrastructureError, one_line

_OF_THE_PLATFORM = ("Architecture", "Os")
_OF_THE_CONFIGURATION = ("Env", "Cmd", "Entrypoint", "User", "WorkingDir")
# Named only where an image has them, so that the digests of those without, as ours are, stay what they were.
_IF_THERE = ("Healthcheck", "StopSignal", "Volumes")
_MOST_MEMBERS = 10_000
"""Of an archive; each takes a kilobyte of memory, and an image has some for each of its layers."""


class _Settings(BaseModel):
    """What is read of an image's settings; the others are compared as they are."""

    model_config = ConfigDict(extra="allow")
    Labels: dict[str, str] | None = None
    Env: list[str] | None = None


class _RootFilesystem(BaseModel):
    diff_ids: list[str]


class _Configuration(BaseModel):
    rootfs: _RootFilesystem
    config: _Settings | None = None
    architecture: str | None = None
    os: str | None = None


class _Image(BaseModel):
    Config: str
    Layers: list[str]


@dataclass(frozen=True)
class ImageIdentity:
    """Two images are identical if `config_sha256` and `layers` are equal; the id differs between engines."""

    image_id: str
    """The engine's id of the image."""
    config_sha256: str
    """Over the settings that change what runs; labels and dates do not count."""
    layers: tuple[str, ...]
    """Digests of the layers' content (diff ids), first to last."""


def identity_of(attributes: Mapping[str, Any]) -> ImageIdentity:
    """The identity of an image, from what an engine's `inspect` says about it."""
    text = json.dumps(settings(attributes), sort_keys=True)
    return ImageIdentity(
        image_id=str(attributes["Id"]),
        config_sha256=hashlib.sha256(text.encode()).hexdigest(),
        layers=tuple((attributes.get("RootFS") or {}).get("Layers") or ()),
    )


def settings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that change what runs, by their names. However an engine writes an empty one, here it is null."""
    configuration = attributes.get("Config") or {}
    platform = {name: attributes.get(name) or None for name in _OF_THE_PLATFORM}
    usual = {name: configuration.get(name) or None for name in _OF_THE_CONFIGURATION}
    return platform | usual | {name: configuration[name] for name in _IF_THERE if configuration.get(name)}


def differences(expected: ImageIdentity, found: ImageIdentity) -> tuple[str, ...]:
    """One line for each difference, layers named by number and short digest; empty if the images are identical."""
    lines = layer_differences(expected.layers, found.layers)
    if expected.config_sha256 != found.config_sha256:
        before, after = _told_apart(expected.config_sha256, found.config_sha256)
        lines.append(
            "settings (environment, command, user, directory, platform, health check, volumes): expected "
            f"{before}, found {after}"
        )
    return tuple(lines)


def insist(expected: ImageIdentity, found: ImageIdentity, what: str, consequence: str) -> None:
    """Refuses an image that is not the expected one.

    Args:
        what: the image, such as `what arrived`.
        consequence: what was therefore not done.
    """
    wrong = differences(expected, found)
    if wrong:
        raise InfrastructureError(
            f"{what} is not the recorded image, so {consequence}: expected {expected.image_id}, found "
            f"{found.image_id}; {'; '.join(wrong)}"
        )


def layer_differences(expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """One line for each position at which the layers differ; the first is layer 1."""
    count = max(len(expected), len(found))
    lines: list[str] = []
    for position in range(count):
        before, after = _at(expected, position), _at(found, position)
        if before != after:
            before, after = _told_apart(before, after)
            lines.append(f"layer {position + 1} of {count}: expected {before}, found {after}")
    return lines


def setting_differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """One line for each setting that differs; of the variables only those that do."""
    lines: list[str] = []
    for name in sorted(expected.keys() | found.keys()):
        before, after = expected.get(name), found.get(name)
        if before == after:
            continue
        if name == "Env":
            lines += mapping_differences(_variables(before), _variables(after), "variable ") or ["order of Env"]
        else:
            lines.append(f"{name}: expected {_shown(before)}, found {_shown(after)}")
    return lines


def mapping_differences(expected: Mapping[str, Any], found: Mapping[str, Any], prefix: str = "") -> list[str]:
    """One line for each key whose value differs, such as the version of a distribution."""
    return [
        f"{prefix}{name}: expected {_value(expected, name)}, found {_value(found, name)}"
        for name in sorted(expected.keys() | found.keys())
        if _value(expected, name) != _value(found, name)
    ]


def short_digest(digest: str) -> str:
    """Twelve hexadecimal digits, as engines print them."""
    return digest.removeprefix("sha256:")[:12]


def is_archive(name: str) -> bool:
    """Whether a name on the command line is meant as such a file."""
    path = Path(name)
    return path.suffix == ".tar" or (path.is_file() and tarfile.is_tarfile(path))


def read_archive(path: Path) -> dict[str, Any]:
    """The image in a file, in the form in which engines describe images. Layers are not unpacked."""
    try:
        # Never compressed: a megabyte of it could be a gigabyte
        with (
            _Bounded(open_foreign_file(path, follows_links=True)) as file,
            tarfile.open(fileobj=file, mode="r:") as archive,
        ):
            members = [member.name for member in islice(archive, _MOST_MEMBERS + 1)]
            if len(members) > _MOST_MEMBERS:
                raise tarfile.ReadError(f"it has more than {_MOST_MEMBERS} files; expected some for each layer")
            known = set(members)
            images = validated(list[_Image], _member(archive, "manifest.json"), "manifest.json")
            if len(images) != 1:
                raise ConfigurationError(f"{len(images)} images; expected one", file=path)
            data = _member(archive, images[0].Config)
            configuration = validated(_Configuration, data, "the configuration")
            found = {
                "Id": f"sha256:{hashlib.sha256(data).hexdigest()}",
                "Architecture": configuration.architecture,
                "Os": configuration.os,
                "Config": None if configuration.config is None else configuration.config.model_dump(exclude_unset=True),
                "RootFS": {"Layers": configuration.rootfs.diff_ids},
            }
            missing = [name for name in images[0].Layers if name not in known]
            if missing:
                raise ConfigurationError(
                    f"the layer {one_line(missing[0], 200)} is missing; save the image again", file=path
                )
    except FileNotFoundError:
        raise ConfigurationError("no such file", file=path) from None
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", file=path) from None
    except (ForeignDataError, tarfile.TarError, EOFError, LookupError, ValueError) as error:
        raise ConfigurationError(
            f"no saved image, or one that was cut off ({one_line(str(error), 500)}); "
            "`taxmeter images save` writes such files",
            file=path,
        ) from None
    return found


class _Bounded(io.BufferedReader):
    """Reads no more at once than an archive of ours has a reason for, whatever its headers say."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MAX_JSON_BYTES:
            raise tarfile.ReadError("a header is longer than the whole archive may be")
        return super().read(size)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.getmember(name)
    stream = archive.extractfile(member)
    if stream is None or member.size > MAX_JSON_BYTES:
        raise KeyError(f"{name} is no file, or too long")
    return stream.read()


def _at(layers: Sequence[str], position: int) -> str:
    return layers[position] if position < len(layers) else "none"


def _told_apart(before: str, after: str) -> tuple[str, str]:
    """Both digests shortened, unless they then looked alike."""
    shortened = short_digest(before), short_digest(after)
    return (before, after) if shortened[0] == shortened[1] else shortened


def _variables(pairs: Sequence[str] | None) -> dict[str, str]:
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs or ())}


def _value(values: Mapping[str, Any], name: str) -> str:
    return _shown(values[name]) if name in values else "none"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value)
