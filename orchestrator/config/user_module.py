"""A model of somebody's own in a sweep: `module: FILE.py:FUNCTION`, and what the file says."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationInfo

from orchestrator.boundary import read_foreign_file
from orchestrator.config.documents import StrictModel
from orchestrator.errors import ForeignDataError
from runners.contract.user_module import (
    MAX_MODULE_BYTES,
    ModuleError,
    Signature,
    module_option,
    signature_of,
)

DIRECTORY: Final = "directory"
"""Of the sweep, in the context of its validation: files are named from there."""
STORED: Final = "stored"
"""In the context of a sweep out of the store: the texts of its files, by `FILE.py:FUNCTION`."""


class UserModule(StrictModel):
    """A function of a file of the user's, as it was read."""

    file: str
    """Its name, without directories."""
    function: str
    source: str
    """The text of the file."""

    @property
    def option(self) -> str:
        """How the options of a workload, and so its rows, name it."""
        return module_option(self.file, self.function, self.source)

    def signature(self) -> Signature:
        """What the function takes.

        Raises:
            ValueError: the file is no Python, or has no such function that returns a pair; names its line.
        """
        try:
            return signature_of(self.source, self.function)
        except ModuleError as wrong:
            raise ValueError(f"{self.file}{'' if wrong.line is None else f':{wrong.line}'}: {wrong}") from None


def read_module(value: object, info: ValidationInfo) -> object:
    """What a sweep says as `module`, with the file that it names."""
    if isinstance(value, dict):
        return UserModule(**value)  # of a sweep that was read before
    if not isinstance(value, str):
        return value
    named, _, function = value.rpartition(":")
    if not re.fullmatch(r".+\.py", named) or not function.isidentifier():
        raise ValueError(f"expected FILE.py:FUNCTION, such as mine.py:build, not {value!r}")
    context: Mapping[str, object] = info.context or {}
    path = Path(str(context.get(DIRECTORY, "."))) / named
    if not re.fullmatch(r"[\w.-]+", path.name, re.ASCII):
        raise ValueError(f"the name of a file has letters, digits and ._- alone; rename {path.name!r}")
    stored = context.get(STORED)
    source = _stored(stored, path.name, function) if isinstance(stored, Mapping) else _read(path)
    return UserModule(file=path.name, function=function, source=source)


def _stored(texts: Mapping[str, str], file: str, function: str) -> str:
    name = f"{file}:{function}"
    if name not in texts:
        raise ValueError(f"the campaign does not have the text of {name}; run its sweep again in place of resuming it")
    return texts[name]


def _read(path: Path) -> str:
    try:
        return read_foreign_file(path, MAX_MODULE_BYTES, follows_links=True).decode("utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}; name it as seen from the sweep's directory") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    except ForeignDataError as error:
        raise ValueError(str(error)) from None
