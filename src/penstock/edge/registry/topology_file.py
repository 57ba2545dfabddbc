"""`topology.json`: the last good answer of the registry, and the node's key, in its data directory.

The file is replaced atomically: written aside, synced, renamed, and the directory is synced. A kill
or a power cut leaves the old file or the new one. A file that cannot be read is reported and counts
as none: the node registers again. The key is created with the first start and readable by its
owner only.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pydantic import ValidationError

from penstock.core.errors import ConfigError
from penstock.edge.registry.documents import TopologyDocument
from penstock.edge.registry.identities import TOKEN_CHARACTERS_MAX, token_problem

FILE_NAME: Final = "topology.json"
TOKEN_NAME: Final = "registry.token"  # noqa: S105 (a file's name)
_OWNER_ONLY: Final = 0o600
_FILE_BYTES_MAX: Final = 1_048_576


def read_topology(path: str) -> tuple[TopologyDocument | None, str]:
    """Return the stored topology, and the problem of a file that cannot be used."""
    try:
        with open(path, "rb") as opened:
            data = opened.read(_FILE_BYTES_MAX)
        return TopologyDocument.model_validate_json(data, strict=True), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a topology"
        return None, f"{path} cannot be read: {reason}"


def write_topology(path: str, document: TopologyDocument) -> None:
    """Replace the file; it is on disk when this returns. Raise `OSError`."""
    data = document.model_dump_json(indent=2).encode() + b"\n"
    _replace(path, data)


def read_or_create_token(path: str, new_token: Callable[[], str]) -> str:
    """Return the token of a file, created if it does not exist; raise `ConfigError`."""
    try:
        if not os.path.exists(path):
            _replace(path, new_token().encode() + b"\n")
        return read_token(path)
    except OSError as error:
        raise ConfigError(
            f"the token file {path} cannot be created: {error.strerror}",
            hint="Check the directory and its permissions.",
        ) from error


def read_token(path: str) -> str:
    """Return the token of a file; raise `ConfigError`."""
    try:
        with open(path, "rb") as opened:
            data = opened.read(2 * TOKEN_CHARACTERS_MAX)
    except OSError as error:
        raise ConfigError(
            f"the token file {path} cannot be read: {error.strerror}",
            hint="Check the path and its permissions.",
        ) from error
    token = data.decode("ascii", "replace").strip()
    if (problem := token_problem(token)) is not None:
        raise ConfigError(
            f"the token in {path} {problem}",
            hint="Write a random text of 43 characters: `openssl rand -hex 32 > FILE`.",
        )
    return token


def _replace(path: str, data: bytes) -> None:
    aside = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(aside)  # of a process that was killed
    descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _OWNER_ONLY)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(aside, path)
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
